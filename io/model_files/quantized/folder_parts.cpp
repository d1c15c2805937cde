#include "io/model_files/quantized/folder_parts.hpp"

#include <algorithm>
#include <array>
#include <fstream>
#include <string_view>
#include <system_error>
#include <utility>

#include "io/model_files/file_text.hpp"

namespace pagoda::io {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kMaxPartConfigBytes = std::size_t{16} << 20;
constexpr std::string_view kModelConfig = "config.json";

/// Returns whether a file of the model's folder is neither weights nor config.json.
bool is_other_file(const fs::path& path) {
  constexpr std::array<std::string_view, 9> kWeights{".safetensors", ".bin", ".pt",   ".pth",    ".gguf",
                                                     ".h5",          ".ot",  ".onnx", ".msgpack"};
  const std::string name = path.filename().string();
  return name != kModelConfig && !name.ends_with(".index.json") &&
         std::ranges::none_of(kWeights, [&](std::string_view ending) { return name.ends_with(ending); });
}

/// Copies those files of `from` for which `wanted` is true, without subfolders.
template <class Wanted>
std::error_code copy_files(const fs::path& from, const fs::path& to, const Wanted& wanted) {
  std::error_code error;
  for (fs::directory_iterator entry(from, error), end; !error && entry != end; entry.increment(error)) {
    std::error_code ignored;  // a broken link is not copied
    if (!entry->is_regular_file(ignored) || !wanted(entry->path())) continue;
    fs::copy_file(entry->path(), to / entry->path().filename(), fs::copy_options::overwrite_existing, error);
    if (error) break;
  }
  return error;
}

Status copy_other_files(const fs::path& from, const fs::path& to) {
  constexpr const char* kTemplates = "additional_chat_templates";
  std::error_code error = copy_files(from, to, is_other_file);
  std::error_code ignored;
  if (!error && fs::is_directory(from / kTemplates, ignored)) {
    fs::create_directory(to / kTemplates, error);
    if (!error) error = copy_files(from / kTemplates, to / kTemplates, [](const fs::path&) { return true; });
  }
  if (!error) return {};
  return fail(ErrorCode::io_failed, "cannot copy the files of " + from.string() + ": " + error.message(), "out");
}

}  // namespace

Result<FolderParts> folder_parts_of_folder(const fs::path& model, const Checkpoint& checkpoint) {
  if (const std::string strided = checkpoint.first_strided(); !strided.empty()) {
    return fail(ErrorCode::unsupported, "tensor " + quote(strided) + " is not row-major", "model");
  }
  const fs::path path = model / kModelConfig;
  // The first read checks the JSON with all limits; the second read keeps the order of keys.
  const auto checked = read_json_file(path, kMaxPartConfigBytes, ErrorCode::bad_config);
  if (!checked) return fail(checked.error());
  FolderParts parts;
  std::ifstream file(path);
  parts.config = nlohmann::ordered_json::parse(file, nullptr, false);
  if (!parts.config.is_object()) return fail(ErrorCode::bad_config, path.string() + ": is not a JSON object");
  for (const std::string& name : checkpoint.tensor_names()) {
    const auto stored = checkpoint.stored(name);
    parts.tensors.push_back({name,
                             std::string(stored->dtype),
                             {stored->shape.begin(), stored->shape.end()},
                             stored->data.size(),
                             [data = stored->data](std::vector<std::byte>&) { return data; }});
  }
  parts.copied_from = model;
  return parts;
}

Status write_other_files(const FolderParts& parts, const fs::path& folder) {
  if (!parts.copied_from.empty()) {
    if (Status status = copy_other_files(parts.copied_from, folder); !status) return status;
  }
  for (const auto& [name, text] : parts.texts) {
    std::ofstream file(folder / name, std::ios::binary);
    file.write(text.data(), static_cast<std::streamsize>(text.size()));
    file.close();
    if (!file) return fail(ErrorCode::io_failed, "cannot write " + (folder / name).string(), "out");
  }
  return {};
}

}  // namespace pagoda::io

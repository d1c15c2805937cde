#include "io/model_files/quantized/compressed_tensors_writer.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <fstream>
#include <set>
#include <string_view>
#include <system_error>
#include <utility>

#include <nlohmann/json.hpp>

#include "io/model_files/file_text.hpp"

namespace pagoda::io {
namespace {

using nlohmann::ordered_json;
namespace fs = std::filesystem;

constexpr std::size_t kMostConfigBytes = std::size_t{16} << 20;

Status make_empty_folder(const fs::path& folder) {
  std::error_code error;
  fs::create_directories(folder, error);
  if (error) return fail(ErrorCode::io_failed, "cannot make " + folder.string() + ": " + error.message(), "out");
  const bool is_empty = fs::is_empty(folder, error);
  if (error) return fail(ErrorCode::io_failed, "cannot read " + folder.string() + ": " + error.message(), "out");
  if (!is_empty) return fail(ErrorCode::bad_config, folder.string() + " is not empty", "out");
  return {};
}

/// The model's config.json, told that its linear layers are quantised. Those that are not are named one by one.
Result<std::string> quantized_config(const fs::path& model, const CompressedTensorsWriter::Format& format,
                                     const std::vector<std::string>& plain_modules) {
  const fs::path path = model / "config.json";
  // Checked as JSON is checked everywhere; then read again in its own order.
  const auto checked = read_json_file(path, kMostConfigBytes, ErrorCode::bad_config);
  if (!checked) return fail(checked.error());
  std::ifstream file(path);
  auto config = ordered_json::parse(file, nullptr, false);
  if (!config.is_object()) return fail(ErrorCode::bad_config, path.string() + ": is not a JSON object");
  for (const char* key : {"quantization_config", "compression_config"}) {
    if (config.contains(key)) {
      return fail(ErrorCode::unsupported, path.string() + ": the model is quantised already (" + key + ")", "model");
    }
  }
  const ordered_json weights{{"num_bits", format.bits},
                             {"type", "int"},
                             {"symmetric", true},
                             {"strategy", "group"},
                             {"group_size", format.group_size},
                             {"actorder", nullptr},
                             {"block_structure", nullptr},
                             {"dynamic", false},
                             {"observer", "minmax"},
                             {"observer_kwargs", ordered_json::object()}};
  config["quantization_config"] = {{"quant_method", "compressed-tensors"},
                                   {"format", "pack-quantized"},
                                   {"quantization_status", "compressed"},
                                   {"config_groups",
                                    {{"group_0",
                                      {{"targets", {"Linear"}},
                                       {"weights", weights},
                                       {"input_activations", nullptr},
                                       {"output_activations", nullptr}}}}},
                                   {"ignore", plain_modules},
                                   {"kv_cache_scheme", nullptr},
                                   {"global_compression_ratio", nullptr}};
  return config.dump(2) + "\n";
}

/// Whether a file of the model's folder is neither weights nor config.json.
bool is_other_file(const fs::directory_entry& entry) {
  constexpr std::array<std::string_view, 8> kWeights{".safetensors", ".bin", ".pt",      ".pth",
                                                     ".gguf",        ".h5",  ".msgpack", ".onnx"};
  const std::string name = entry.path().filename().string();
  return entry.is_regular_file() && name != "config.json" && !name.ends_with(".index.json") &&
         std::ranges::none_of(kWeights, [&](std::string_view ending) { return name.ends_with(ending); });
}

std::span<const std::byte> bytes_of(const auto& elements) {
  return std::as_bytes(std::span(elements));
}

}  // namespace

Result<CompressedTensorsWriter> CompressedTensorsWriter::create(const fs::path& model, const Checkpoint& checkpoint,
                                                                const fs::path& folder, std::vector<Module> modules,
                                                                const Format& format) {
  if (const std::string strided = checkpoint.first_strided(); !strided.empty()) {
    return fail(ErrorCode::unsupported, "tensor " + quote(strided) + " does not lie row by row", "model");
  }
  std::set<std::string, std::less<>> replaced;
  std::vector<SafetensorsWriter::Tensor> tensors;
  for (const Module& module : modules) {
    replaced.insert(module.name + ".weight");
    const std::int64_t words = module.columns * format.bits / 32;
    const std::int64_t groups = module.columns / format.group_size;
    PAGODA_ASSERT(module.columns * format.bits % 32 == 0 && module.columns % format.group_size == 0, "whole words");
    tensors.push_back({module.name + ".weight_packed",
                       "I32",
                       {module.rows, words},
                       static_cast<std::size_t>(module.rows * words * 4)});
    tensors.push_back({module.name + ".weight_scale",
                       "F16",
                       {module.rows, groups},
                       static_cast<std::size_t>(module.rows * groups * 2)});
    tensors.push_back({module.name + ".weight_shape", "I64", {2}, 16});
  }
  std::vector<std::string> plain;
  std::vector<std::string> plain_modules{"lm_head"};
  for (const std::string& name : checkpoint.tensor_names()) {
    if (replaced.contains(name)) continue;
    const auto stored = checkpoint.stored(name);
    tensors.push_back(
        {name, std::string(stored->dtype), {stored->shape.begin(), stored->shape.end()}, stored->data.size()});
    plain.push_back(name);
    if (stored->shape.size() == 2 && name.ends_with(".weight") && name != "lm_head.weight") {
      plain_modules.push_back(name.substr(0, name.size() - std::string_view(".weight").size()));
    }
  }
  auto config = quantized_config(model, format, plain_modules);
  if (!config) return fail(std::move(config.error()));
  if (Status status = make_empty_folder(folder); !status) return fail(std::move(status.error()));
  auto weights = SafetensorsWriter::create(folder / "model.safetensors", std::move(tensors));
  if (!weights) return fail(std::move(weights.error()));
  for (const std::string& name : plain) {
    if (Status status = weights->write(name, checkpoint.stored(name)->data); !status) {
      return fail(std::move(status.error()));
    }
  }
  return CompressedTensorsWriter(model, folder, format, std::move(*config), std::move(*weights));
}

Status CompressedTensorsWriter::write(const Module& module, std::span<const std::uint8_t> q,
                                      std::span<const Float16> scales) {
  // A word holds neighbouring columns from its low bits on.
  std::vector<std::uint8_t> packed(q.begin(), q.end());
  if (format_.bits == 4) {
    packed.resize(q.size() / 2);
    for (std::size_t i = 0; i < packed.size(); ++i) packed[i] = static_cast<std::uint8_t>(q[2 * i] | q[2 * i + 1] << 4);
  }
  const std::array<std::int64_t, 2> shape{module.rows, module.columns};
  Status status = weights_.write(module.name + ".weight_packed", bytes_of(packed));
  if (status) status = weights_.write(module.name + ".weight_scale", std::as_bytes(scales));
  if (status) status = weights_.write(module.name + ".weight_shape", bytes_of(shape));
  return status;
}

Status CompressedTensorsWriter::finish() {
  if (Status status = weights_.finish(); !status) return status;
  std::error_code error;
  for (fs::directory_iterator entry(model_, error), end; !error && entry != end; entry.increment(error)) {
    if (!is_other_file(*entry)) continue;
    fs::copy_file(entry->path(), folder_ / entry->path().filename(), error);
    if (error) break;
  }
  if (error) return fail(ErrorCode::io_failed, "cannot copy the files of " + model_.string() + ": " + error.message());
  std::ofstream file(folder_ / "config.json", std::ios::binary);
  file << config_;
  file.close();
  if (!file) return fail(ErrorCode::io_failed, "cannot write " + (folder_ / "config.json").string());
  return {};
}

}  // namespace pagoda::io

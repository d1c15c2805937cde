#include "io/model_files/model_files.hpp"

#include <array>
#include <fstream>
#include <string_view>
#include <system_error>

#include "io/model_files/gguf/gguf_model.hpp"
#include "io/model_files/huggingface_folder.hpp"

namespace pagoda::io {
namespace {

bool is_gguf(const std::filesystem::path& path) {
  std::error_code ignored;
  if (std::filesystem::is_directory(path, ignored)) return false;
  if (path.extension() == ".gguf") return true;
  constexpr std::string_view kMagic = "GGUF";
  std::array<char, kMagic.size()> first{};
  std::ifstream(path, std::ios::binary).read(first.data(), first.size());
  return std::string_view(first.data(), first.size()) == kMagic;
}

}  // namespace

Result<std::shared_ptr<const ModelFiles>> open_model_files(const std::filesystem::path& path) {
  if (is_gguf(path)) return open_gguf_model(path);
  return open_huggingface_folder(path);
}

Result<std::shared_ptr<const text::Tokenizer>> load_tokenizer(const std::filesystem::path& model) {
  const auto files = open_model_files(model);
  if (!files) return fail(files.error());
  return (*files)->tokenizer();
}

Result<std::shared_ptr<const chat::ChatPrompts>> load_chat_prompts(const std::filesystem::path& model,
                                                                   const std::filesystem::path& override_file) {
  const auto files = open_model_files(model);
  if (!files) return fail(files.error());
  return (*files)->chat_prompts(override_file);
}

}  // namespace pagoda::io

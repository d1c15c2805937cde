#include "io/model_files/model_files.hpp"

#include <array>
#include <fstream>
#include <string_view>
#include <system_error>

#include "io/dialect_file.hpp"
#include "io/model_files/dummy_model.hpp"
#include "io/model_files/file_text.hpp"
#include "io/model_files/generation_config.hpp"
#include "io/model_files/gguf/gguf_model.hpp"
#include "io/model_files/huggingface_folder.hpp"
#include "io/model_files/model_location.hpp"

namespace pagoda::io {
namespace {

bool is_gguf(const std::filesystem::path& path) {
  std::error_code ignored;
  if (std::filesystem::is_directory(path, ignored)) return false;
  if (path.extension() == ".gguf") return true;
  if (!std::filesystem::is_regular_file(path, ignored)) return false;  // opening a pipe would block
  constexpr std::string_view kMagic = "GGUF";
  std::array<char, kMagic.size()> first{};
  std::ifstream(path, std::ios::binary).read(first.data(), first.size());
  return std::string_view(first.data(), first.size()) == kMagic;
}

Status check_folder(const std::filesystem::path& folder) {
  std::error_code ignored;
  if (!std::filesystem::exists(folder, ignored)) {
    return fail(ErrorCode::bad_config, folder.string() + ": no such model folder or GGUF file", "model");
  }
  if (!std::filesystem::is_directory(folder, ignored)) {
    return fail(ErrorCode::bad_config, folder.string() + ": neither a model folder nor a GGUF file", "model");
  }
  return {};
}

}  // namespace

Result<std::shared_ptr<const ModelFiles>> open_model_files(const std::filesystem::path& model, LoadFormat format) {
  const auto path = locate_model(model);
  if (!path) return fail(path.error());
  if (format == LoadFormat::dummy) return open_dummy_model(*path);
  if (is_gguf(*path)) return open_gguf_model(*path);
  if (const Status status = check_folder(*path); !status) return fail(status.error());
  return open_huggingface_folder(*path);
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

Result<std::shared_ptr<const chat::ChatPrompts>> load_chat_prompts(const EngineConfig& config) {
  const auto format = config.load_format == "dummy" ? LoadFormat::dummy : LoadFormat::automatic;
  const auto files = open_model_files(config.model, format);
  if (!files) return fail(files.error());
  return load_chat_prompts(config, **files);
}

Result<std::shared_ptr<const chat::ChatPrompts>> load_chat_prompts(const EngineConfig& config,
                                                                   const ModelFiles& files) {
  auto prompts = files.chat_prompts(config.chat_template);
  if (!prompts || config.answer_dialect.empty()) return prompts;
  if (*prompts == nullptr) {
    return fail(ErrorCode::bad_config,
                "an answer dialect needs a chat template, and the model has none: set chat_template", "answer_dialect");
  }
  auto dialect = load_dialect(config.answer_dialect);
  if (!dialect) return fail(std::move(dialect.error()));
  (*prompts)->set_dialect(std::move(*dialect));
  return prompts;
}

Result<SamplingDefaults> load_sampling_defaults(const EngineConfig& config, const ModelFiles& files) {
  const auto& choice = config.generation_config;
  if (choice == "auto") return files.sampling_defaults();
  if (choice == "vllm") return SamplingDefaults{};
  if (!has_entry(std::filesystem::path(choice) / "generation_config.json")) {
    return fail(
        ErrorCode::bad_config,
        "generation_config must be auto, vllm, or a folder with a generation_config.json, not \"" + choice + "\"",
        "generation_config");
  }
  return load_sampling_defaults(choice);
}

}  // namespace pagoda::io

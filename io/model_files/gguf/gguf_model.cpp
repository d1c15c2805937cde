#include "io/model_files/gguf/gguf_model.hpp"

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "io/model_files/chat_template_files.hpp"
#include "io/model_files/gguf/gguf_config.hpp"
#include "io/model_files/gguf/gguf_file.hpp"
#include "io/model_files/gguf/gguf_tokenizer.hpp"
#include "io/model_files/gguf/gguf_weights.hpp"

namespace pagoda::io {
namespace {

class GgufModel final : public ModelFiles {
 public:
  explicit GgufModel(std::shared_ptr<const GgufFile> file) : file_(std::move(file)) {}

  std::string name() const override {
    constexpr std::string_view kPartNumbers = "-00001-of-00001";
    auto stem = std::filesystem::path(file_->path()).stem().string();
    // The stem of the first part ends with its number.
    if (file_->num_files() > 1) stem.resize(stem.size() - kPartNumbers.size());
    return stem;
  }

  Result<models::ModelSpec> spec() const override { return read_gguf_spec(*file_); }

  Result<std::shared_ptr<const ModelWeights>> weights() const override {
    auto weights = GgufWeights::open(file_);
    if (!weights) return fail(std::move(weights.error()));
    return std::move(*weights);
  }

  Result<std::shared_ptr<const text::Tokenizer>> tokenizer() const override { return load_gguf_tokenizer(*file_); }

  Result<TokenizerNames> tokenizer_names() const override {
    auto special_tokens = gguf_special_tokens(*file_);
    if (!special_tokens) return fail(std::move(special_tokens.error()));
    return TokenizerNames{{}, std::move(*special_tokens)};
  }

  Result<SamplingDefaults> sampling_defaults() const override { return read_gguf_sampling_defaults(*file_); }

  Result<std::shared_ptr<const chat::ChatPrompts>> chat_prompts(
      const std::filesystem::path& override_file) const override {
    std::vector<chat::NamedTemplate> templates;
    const auto look_up = [&](const char* name, const std::string& key) -> Status {
      const auto text = file_->get<std::string_view>(key);
      if (!text) return fail(text.error());
      if (*text) templates.push_back({name, std::string(**text), file_->path() + ": " + key});
      return {};
    };
    const std::string key(kGgufTemplateKey);
    if (!override_file.empty()) {
      auto read = read_chat_template(override_file);
      if (!read) return fail(std::move(read.error()));
      templates.push_back(std::move(*read));
    } else {
      if (auto status = look_up("default", key); !status) return fail(std::move(status.error()));
      for (const char* name : chat::ChatPrompts::kSpecialNames) {
        if (auto status = look_up(name, key + "." + name); !status) return fail(std::move(status.error()));
      }
    }
    if (templates.empty()) return std::shared_ptr<const chat::ChatPrompts>();
    auto special_tokens = gguf_special_tokens(*file_);
    if (!special_tokens) return fail(std::move(special_tokens.error()));
    return make_chat_prompts(std::move(templates), std::move(*special_tokens));
  }

 private:
  std::shared_ptr<const GgufFile> file_;
};

}  // namespace

Result<std::shared_ptr<const ModelFiles>> open_gguf_model(const std::filesystem::path& path) {
  auto file = GgufFile::open(path);
  if (!file) return fail(std::move(file.error()));
  return std::make_shared<GgufModel>(std::move(*file));
}

}  // namespace pagoda::io

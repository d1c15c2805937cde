#include "io/model_files/huggingface_folder.hpp"

#include <string>
#include <utility>
#include <vector>

#include "io/model_files/chat_template_files.hpp"
#include "io/model_files/folder_spec.hpp"
#include "io/model_files/generation_config.hpp"
#include "io/model_files/model_location.hpp"
#include "io/model_files/quantized/quantized_checkpoint.hpp"
#include "io/model_files/tokenizer_loader.hpp"

namespace pagoda::io {
namespace {

class HuggingFaceFolder final : public ModelFiles {
 public:
  explicit HuggingFaceFolder(std::filesystem::path folder) : folder_(std::move(folder)) {}

  std::string name() const override {
    if (auto name = hub_name(folder_)) return *std::move(name);
    const auto path = folder_.lexically_normal();
    return path.has_filename() ? path.filename().string() : path.parent_path().filename().string();
  }

  Result<models::ModelSpec> spec() const override { return load_folder_spec(folder_); }

  std::vector<std::string> remarks() const override { return folder_remarks(folder_); }

  Result<std::shared_ptr<const ModelWeights>> weights() const override { return open_folder_weights(folder_); }

  Result<std::shared_ptr<const text::Tokenizer>> tokenizer() const override { return load_folder_tokenizer(folder_); }

  Result<TokenizerNames> tokenizer_names() const override { return folder_tokenizer_names(folder_); }

  Result<SamplingDefaults> sampling_defaults() const override { return load_sampling_defaults(folder_); }

  Result<std::shared_ptr<const chat::ChatPrompts>> chat_prompts(
      const std::filesystem::path& override_file) const override {
    return folder_chat_prompts(folder_, override_file);
  }

 private:
  std::filesystem::path folder_;
};

}  // namespace

std::shared_ptr<const ModelFiles> open_huggingface_folder(const std::filesystem::path& folder) {
  return std::make_shared<HuggingFaceFolder>(folder);
}

}  // namespace pagoda::io

#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "engine/config.hpp"
#include "engine/models/model_spec.hpp"
#include "engine/request/sampling_defaults.hpp"
#include "engine/text/tokenizer.hpp"
#include "io/chat/chat_prompts.hpp"
#include "io/model_files/model_weights.hpp"
#include "kernels/result.hpp"

namespace pagoda::io {

/// What a model's files call its tokenizer and the tokens with a part to play ("bos_token", "eos_token", ...).
struct TokenizerNames {
  std::string tokenizer_class;  ///< empty where the files have none
  std::map<std::string, std::string> special_tokens;
};

/// All that a model's files say. Thread-safe.
class ModelFiles {
 public:
  virtual ~ModelFiles() = default;

  /// Name of the folder, of the file without its ending, or ORG/NAME for a folder of the hub's cache.
  virtual std::string name() const = 0;
  /// Sizes, positions, special tokens, and how the model is built. Errors: bad_config, unsupported, bad_file; the
  /// message names file and key.
  virtual Result<models::ModelSpec> spec() const = 0;
  /// Warnings for the user about what the files hold and how that is read. Reads them again.
  virtual std::vector<std::string> remarks() const { return {}; }
  /// Mapped, headers checked. Errors: io_failed, bad_file, bad_config, unsupported.
  virtual Result<std::shared_ptr<const ModelWeights>> weights() const = 0;
  /// Errors: bad_config, bad_file, unsupported.
  virtual Result<std::shared_ptr<const text::Tokenizer>> tokenizer() const = 0;
  /// Errors: bad_config, bad_file.
  virtual Result<TokenizerNames> tokenizer_names() const = 0;
  /// Errors: bad_config.
  virtual Result<SamplingDefaults> sampling_defaults() const = 0;
  /// The chat template, or that of `override_file`, a Jinja source, unless its name is empty. Null when there is none.
  /// Errors: io_failed, bad_file; for a template also with the line.
  virtual Result<std::shared_ptr<const chat::ChatPrompts>> chat_prompts(
      const std::filesystem::path& override_file) const = 0;
};

/// How models are opened: as their files are, or with random weights (dummy_model.hpp).
enum class LoadFormat { automatic, dummy };

/// A Hugging Face model folder or a GGUF file, where locate_model finds it. GGUF is whatever is not a folder and has
/// the name *.gguf or begins with GGUF's magic. Errors: bad_config (there is no such thing, or as locate_model), and
/// for GGUF those of GgufFile::open; for LoadFormat::dummy those of open_dummy_model.
Result<std::shared_ptr<const ModelFiles>> open_model_files(const std::filesystem::path& model,
                                                           LoadFormat format = LoadFormat::automatic);

/// ModelFiles::tokenizer and ModelFiles::chat_prompts of `model`, for those who need nothing else of it.
Result<std::shared_ptr<const text::Tokenizer>> load_tokenizer(const std::filesystem::path& model);
Result<std::shared_ptr<const chat::ChatPrompts>> load_chat_prompts(const std::filesystem::path& model,
                                                                   const std::filesystem::path& override_file = {});

/// The chat template that an engine of this configuration is served with, and how its answers are read.
Result<std::shared_ptr<const chat::ChatPrompts>> load_chat_prompts(const EngineConfig& config);
/// The same of files that are open.
Result<std::shared_ptr<const chat::ChatPrompts>> load_chat_prompts(const EngineConfig& config, const ModelFiles& files);

/// Returns the sampling defaults that config.generation_config chooses: those of the model's files (auto), none (vllm),
/// or those of another folder. Errors: as ModelFiles::sampling_defaults, and bad_config for a folder without a
/// generation_config.json.
Result<SamplingDefaults> load_sampling_defaults(const EngineConfig& config, const ModelFiles& files);

}  // namespace pagoda::io

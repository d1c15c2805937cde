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

/// Names of a model's tokenizer and of its special tokens with a role ("bos_token", "eos_token", ...).
struct TokenizerNames {
  std::string tokenizer_class;  ///< empty where the files name none
  std::map<std::string, std::string> special_tokens;
};

/// The files of a model. Thread-safe.
class ModelFiles {
 public:
  virtual ~ModelFiles() = default;

  /// Returns the name of the folder, of the file without its ending, or ORG/NAME for a folder of the hub's cache.
  virtual std::string name() const = 0;
  /// Returns sizes, positions, special tokens and structure of the model. Errors: bad_config, unsupported, bad_file;
  /// the message names file and key.
  virtual Result<models::ModelSpec> spec() const = 0;
  /// Returns warnings for the user about the files' contents and how the engine reads them. Reads the files again.
  virtual std::vector<std::string> remarks() const { return {}; }
  /// Returns the weights, mapped, with checked headers. Errors: io_failed, bad_file, bad_config, unsupported.
  virtual Result<std::shared_ptr<const ModelWeights>> weights() const = 0;
  /// Errors: bad_config, bad_file, unsupported.
  virtual Result<std::shared_ptr<const text::Tokenizer>> tokenizer() const = 0;
  /// Errors: bad_config, bad_file.
  virtual Result<TokenizerNames> tokenizer_names() const = 0;
  /// Errors: bad_config.
  virtual Result<SamplingDefaults> sampling_defaults() const = 0;
  /// Returns the chat templates of the files, or that of `override_file`, a Jinja source, if its name is not empty.
  /// Null when there is none. Errors: io_failed, bad_file; for a template also with the line.
  virtual Result<std::shared_ptr<const chat::ChatPrompts>> chat_prompts(
      const std::filesystem::path& override_file) const = 0;
};

/// How a model is opened: with the weights of its files, or with random weights (dummy_model.hpp).
enum class LoadFormat { automatic, dummy };

/// Opens a Hugging Face model folder or a GGUF file, at the path that locate_model finds. A path that is no folder and
/// is named *.gguf or begins with GGUF's magic is a GGUF file. Errors: bad_config (the path does not exist or is
/// neither, or as locate_model); for GGUF those of GgufFile::open; for LoadFormat::dummy those of open_dummy_model.
Result<std::shared_ptr<const ModelFiles>> open_model_files(const std::filesystem::path& model,
                                                           LoadFormat format = LoadFormat::automatic);

/// Calls ModelFiles::tokenizer or ModelFiles::chat_prompts of `model`, for callers that need nothing else of the model.
Result<std::shared_ptr<const text::Tokenizer>> load_tokenizer(const std::filesystem::path& model);
Result<std::shared_ptr<const chat::ChatPrompts>> load_chat_prompts(const std::filesystem::path& model,
                                                                   const std::filesystem::path& override_file = {});

/// Returns the chat templates that an engine with this configuration uses, with its answer dialect.
Result<std::shared_ptr<const chat::ChatPrompts>> load_chat_prompts(const EngineConfig& config);
/// Returns these chat templates from files that are open.
Result<std::shared_ptr<const chat::ChatPrompts>> load_chat_prompts(const EngineConfig& config, const ModelFiles& files);

/// Returns the sampling defaults that config.generation_config chooses: those of the model's files (auto), none (vllm),
/// or those of another folder. Errors: as ModelFiles::sampling_defaults, and bad_config for a folder without a
/// generation_config.json.
Result<SamplingDefaults> load_sampling_defaults(const EngineConfig& config, const ModelFiles& files);

}  // namespace pagoda::io

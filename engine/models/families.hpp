#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "engine/models/config_source.hpp"
#include "engine/models/gguf_architecture.hpp"
#include "engine/models/model_spec.hpp"

namespace pagoda::models {

// One function for each family, in the file of its name. It reads the keys as the family spells them, with the defaults
// that transformers uses. An error is in config.status() afterwards; the result must not be used then.

ModelSpec describe_baichuan(ConfigSource& config);
ModelSpec describe_baichuan_7b(ConfigSource& config);
ModelSpec describe_cohere2(ConfigSource& config);
ModelSpec describe_eagle3(ConfigSource& config);
ModelSpec describe_gemma2(ConfigSource& config);
ModelSpec describe_gemma3(ConfigSource& config);
ModelSpec describe_gemma3_with_images(ConfigSource& config);
ModelSpec describe_gpt2(ConfigSource& config);
ModelSpec describe_granite(ConfigSource& config);
ModelSpec describe_llama(ConfigSource& config);
ModelSpec describe_ministral(ConfigSource& config);
ModelSpec describe_mistral(ConfigSource& config);
ModelSpec describe_opt(ConfigSource& config);
ModelSpec describe_phi3(ConfigSource& config);
ModelSpec describe_qwen2(ConfigSource& config);
ModelSpec describe_qwen3(ConfigSource& config);
ModelSpec describe_smollm3(ConfigSource& config);

// The GGUF files of each family that has any, in the same files.

extern const GgufArchitecture kBaichuanGguf;
extern const GgufArchitecture kCohere2Gguf;
extern const GgufArchitecture kGemma2Gguf;
extern const GgufArchitecture kGemma3Gguf;
extern const GgufArchitecture kGpt2Gguf;
extern const GgufArchitecture kGraniteGguf;
extern const GgufArchitecture kLlamaGguf;
extern const GgufArchitecture kPhi3Gguf;
extern const GgufArchitecture kQwen2Gguf;
extern const GgufArchitecture kQwen3Gguf;
extern const GgufArchitecture kSmolLm3Gguf;

/// A model family: all models that are described by the same keys.
struct Family {
  std::string_view architecture;  ///< architectures[0] of config.json
  ModelSpec (*describe)(ConfigSource& config);
  const GgufArchitecture* gguf = nullptr;  ///< null when no GGUF file can hold the family's models
  bool is_draft_head = false;              ///< whether these are no models, but heads of models
};

/// Returns null when no family has this architecture.
const Family* find_family(std::string_view architecture);

/// Returns the architectures of all families of models, sorted.
std::vector<std::string> known_architectures();

/// Returns the GGUF architecture that files call `name` (general.architecture); null when no family has it.
const GgufArchitecture* find_gguf_architecture(std::string_view name);

/// Returns the names of all GGUF architectures, sorted.
std::vector<std::string> gguf_architectures();

}  // namespace pagoda::models

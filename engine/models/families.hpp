#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "engine/models/config_source.hpp"
#include "engine/models/gated_decoder.hpp"
#include "engine/models/model_spec.hpp"
#include "engine/models/plain_decoder.hpp"

namespace pagoda::models {

// One function for each family, in the file of its name. It reads the keys as the family spells them, with the defaults
// that transformers uses. An error is in config.status() afterwards; the result must not be used then.

GatedDecoderConfig read_baichuan(ConfigSource& config);
GatedDecoderConfig read_baichuan_7b(ConfigSource& config);
PlainDecoderConfig read_gpt2(ConfigSource& config);
GatedDecoderConfig read_llama(ConfigSource& config);
GatedDecoderConfig read_mistral(ConfigSource& config);
PlainDecoderConfig read_opt(ConfigSource& config);
GatedDecoderConfig read_phi3(ConfigSource& config);
GatedDecoderConfig read_qwen2(ConfigSource& config);
GatedDecoderConfig read_qwen3(ConfigSource& config);

/// A model family: all models that are described by the same keys.
struct Family {
  std::string_view architecture;  ///< architectures[0] of config.json
  ModelSpec (*describe)(ConfigSource& config);
};

/// Returns null when no family has this architecture.
const Family* find_family(std::string_view architecture);

/// Returns the architectures of all families, sorted.
std::vector<std::string> known_architectures();

}  // namespace pagoda::models

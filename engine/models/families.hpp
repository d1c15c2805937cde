#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "engine/models/config_source.hpp"
#include "engine/models/gated_decoder.hpp"
#include "engine/models/model_spec.hpp"
#include "engine/models/plain_decoder.hpp"

namespace pagoda::models {

// One function per family, each in the file of its name: reads the keys as the family spells them, with the defaults
// that transformers gives it. What is wrong is in config.status() afterwards, and then the result is of no use.

GatedDecoderConfig read_baichuan(ConfigSource& config);
GatedDecoderConfig read_baichuan_7b(ConfigSource& config);
PlainDecoderConfig read_gpt2(ConfigSource& config);
GatedDecoderConfig read_llama(ConfigSource& config);
GatedDecoderConfig read_mistral(ConfigSource& config);
PlainDecoderConfig read_opt(ConfigSource& config);
GatedDecoderConfig read_phi3(ConfigSource& config);
GatedDecoderConfig read_qwen2(ConfigSource& config);
GatedDecoderConfig read_qwen3(ConfigSource& config);

/// Models that are described by the same keys.
struct Family {
  std::string_view architecture;  ///< architectures[0] of config.json
  ModelSpec (*describe)(ConfigSource& config);
};

/// Null when there is no such one.
const Family* find_family(std::string_view architecture);

/// The architectures of all families, sorted.
std::vector<std::string> known_architectures();

}  // namespace pagoda::models

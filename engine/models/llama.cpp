#include "engine/models/families.hpp"

namespace pagoda::models {

/// Llama 1 to 3 (Touvron et al. 2023, Dubey et al. 2024).
GatedDecoderConfig read_llama(ConfigSource& config) {
  GatedDecoderConfig decoder = read_gated_decoder(config);
  decoder.attention_bias = config.boolean("attention_bias", false);
  decoder.attention_output_bias = decoder.attention_bias;
  decoder.mlp_bias = config.boolean("mlp_bias", false);
  return decoder;
}

}  // namespace pagoda::models

#include "engine/models/families.hpp"

namespace pagoda::models {

/// Qwen 3 (Yang et al. 2025): Llama's decoder with an RMSNorm over the queries and keys of each head, a default head
/// size of 128, and windows as in Qwen 2.
GatedDecoderConfig read_qwen3(ConfigSource& config) {
  GatedDecoderConfig decoder = read_gated_decoder(config, {.default_head_dim = 128});
  decoder.head_norms = true;
  decoder.attention_bias = config.boolean("attention_bias", false);
  decoder.attention_output_bias = decoder.attention_bias;
  read_optional_window(config, decoder);
  return decoder;
}

}  // namespace pagoda::models

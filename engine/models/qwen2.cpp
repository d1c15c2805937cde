#include "engine/models/families.hpp"

namespace pagoda::models {

/// Qwen 2 and 2.5 (Yang et al. 2024): Llama's decoder with biases on the query, key and value projections, and a
/// sliding window in the upper layers where the config asks for it.
GatedDecoderConfig read_qwen2(ConfigSource& config) {
  GatedDecoderConfig decoder = read_gated_decoder(config);
  decoder.attention_bias = true;
  read_optional_window(config, decoder);
  return decoder;
}

}  // namespace pagoda::models

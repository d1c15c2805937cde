#include "engine/models/families.hpp"

namespace pagoda::models {

/// Mistral 7B (Jiang et al. 2023): Llama's decoder with a sliding window in every layer.
GatedDecoderConfig read_mistral(ConfigSource& config) {
  GatedDecoderConfig decoder = read_gated_decoder(config);
  decoder.attention.window = read_window(config);
  return decoder;
}

}  // namespace pagoda::models

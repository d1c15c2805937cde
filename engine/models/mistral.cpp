#include "engine/models/families.hpp"
#include "engine/models/llama_decoder.hpp"

namespace pagoda::models {

/// Mistral 7B (Jiang et al. 2023): Llama's decoder with a sliding window. Ministral has the window in the layers that
/// layer_types marks.
ModelSpec describe_mistral(ConfigSource& config) {
  DecoderConfig decoder = read_decoder(config);
  read_layer_windows(config, decoder, read_window(config), 0);
  return llama_decoder(decoder, llama_weights(/*attention_bias=*/false, /*mlp_bias=*/false));
}

}  // namespace pagoda::models

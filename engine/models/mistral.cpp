#include "engine/models/families.hpp"
#include "engine/models/llama_decoder.hpp"

namespace pagoda::models {

namespace {

ModelSpec mistral_decoder(const DecoderConfig& decoder) {
  return llama_decoder(decoder, llama_weights(/*attention_bias=*/false, /*mlp_bias=*/false));
}

}  // namespace

/// Mistral 7B (Jiang et al. 2023): Llama's decoder with a sliding window in every layer. As in transformers,
/// layer_types has no effect.
ModelSpec describe_mistral(ConfigSource& config) {
  DecoderConfig decoder = read_decoder(config);
  decoder.set_window_of_all_layers(read_window(config));
  return mistral_decoder(decoder);
}

/// Ministral: Mistral's decoder with the window in the layers that layer_types marks; without layer_types, in all.
ModelSpec describe_ministral(ConfigSource& config) {
  DecoderConfig decoder = read_decoder(config);
  read_layer_windows(config, decoder, read_window(config), 0);
  return mistral_decoder(decoder);
}

}  // namespace pagoda::models

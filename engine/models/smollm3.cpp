#include "engine/models/families.hpp"
#include "engine/models/llama_decoder.hpp"

namespace pagoda::models {
namespace {

/// Takes the positions from the layers that no_rope_layers marks with 0; without that key, from every
/// no_rope_layer_interval-th layer. As in transformers, no_rope_layers may have more entries than there are layers.
void read_layers_without_rope(ConfigSource& config, DecoderConfig& decoder) {
  constexpr std::int64_t kDefaultInterval = 4;
  const std::int64_t interval = config.integer("no_rope_layer_interval", 1, kMaxLayers, kDefaultInterval);
  const bool is_listed = config.has("no_rope_layers");
  const auto has_rope =
      is_listed ? config.numbers("no_rope_layers", decoder.num_layers(), -1.0, true) : std::vector<double>{};
  if (!config.status()) return;
  for (std::int64_t layer = 0; layer < decoder.num_layers(); ++layer) {
    const auto index = static_cast<std::size_t>(layer);
    const bool rotates = is_listed ? has_rope[index] != 0.0 : (layer + 1) % interval != 0;
    if (!rotates) decoder.layer_shapes[index].position_table = layers::kNoPositions;
  }
}

/// Gives the window to the layers that layer_types marks. As in transformers, use_sliding_window has no effect then.
/// Without layer_types, gives the window to the layers without positions if use_sliding_window is true.
void read_windows(ConfigSource& config, DecoderConfig& decoder) {
  const auto window = static_cast<std::int32_t>(config.integer("sliding_window", 1, kMaxPositions, 0));
  const bool use_window = config.boolean("use_sliding_window", false);
  if (config.has("layer_types")) return read_layer_windows(config, decoder, window, 0);
  if (!use_window) return;
  for (LayerShape& layer : decoder.layer_shapes) {
    if (layer.position_table == layers::kNoPositions) layer.window = window;
  }
}

}  // namespace

/// SmolLM3 (Bakouch et al. 2025): Llama's decoder, in which some layers have no positions (NoPE, Kazemnejad et al.
/// 2023; Yang et al. 2025).
ModelSpec describe_smollm3(ConfigSource& config) {
  DecoderConfig decoder = read_decoder(config, {.default_theta = 2e6, .tied_by_default = true});
  read_layers_without_rope(config, decoder);
  read_windows(config, decoder);
  const bool attention_bias = config.boolean("attention_bias", false);
  const bool mlp_bias = config.boolean("mlp_bias", false);
  return llama_decoder(decoder, llama_weights(attention_bias, mlp_bias));
}

constexpr GgufArchitecture kSmolLm3Gguf{
    .name = "smollm3", .hugging_face = {"SmolLM3ForCausalLM", "smollm3"}, .interleaved_heads = true};

}  // namespace pagoda::models

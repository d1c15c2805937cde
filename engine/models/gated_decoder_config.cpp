// Reads the config keys that all families of gated decoders share.

#include <algorithm>
#include <functional>
#include <string>

#include "engine/models/gated_decoder.hpp"
#include "engine/models/rope_config.hpp"

namespace pagoda::models {
namespace {

using layers::AttentionShape;
using layers::PositionKind;

/// Reads head_dim. If neither the config nor the family (`default_dim`) gives it, it is computed from the hidden size.
std::int64_t read_head_dim(ConfigSource& config, const GatedDecoderConfig& decoder, std::int64_t default_dim) {
  const std::int64_t num_heads = decoder.attention.num_heads;
  if (config.has("head_dim") || default_dim > 0) {
    return config.integer("head_dim", 1, kMaxWidth / num_heads, default_dim);
  }
  if (decoder.hidden_size % num_heads != 0) {
    config.reject("hidden_size", std::to_string(decoder.hidden_size) + " is not a multiple of num_attention_heads " +
                                     std::to_string(num_heads) + ", and head_dim is not set");
  }
  return std::max<std::int64_t>(1, decoder.hidden_size / num_heads);
}

AttentionShape read_heads(ConfigSource& config) {
  AttentionShape shape;
  shape.num_heads = config.integer("num_attention_heads", 1, kMaxHeads);
  shape.num_kv_heads = config.integer("num_key_value_heads", 1, kMaxHeads, shape.num_heads);
  if (shape.num_heads % shape.num_kv_heads != 0) {
    config.reject("num_key_value_heads", std::to_string(shape.num_kv_heads) + " does not divide num_attention_heads " +
                                             std::to_string(shape.num_heads));
  }
  return shape;
}

}  // namespace

GatedDecoderConfig read_gated_decoder(ConfigSource& config, const GatedDecoderKeys& keys) {
  GatedDecoderConfig decoder;
  decoder.vocab_size = config.integer("vocab_size", 1, kMaxVocab);
  decoder.hidden_size = config.integer("hidden_size", 1, kMaxWidth);
  decoder.intermediate_size = config.integer("intermediate_size", 1, kMaxWidth);
  decoder.num_layers = config.integer("num_hidden_layers", 1, kMaxLayers);
  decoder.attention = read_heads(config);
  decoder.max_position_embeddings = config.integer(keys.max_positions, 1, kMaxPositions);
  decoder.attention.head_dim = read_head_dim(config, decoder, keys.default_head_dim);
  decoder.norm_eps = config.number("rms_norm_eps", 0.0, 1e-6);
  decoder.positions = {
      .kind = keys.positions,
      .rotary = read_rope(config, decoder.attention.head_dim, decoder.max_position_embeddings, keys.partial_rotary),
      .num_heads = decoder.attention.num_heads,
  };
  decoder.tie_word_embeddings = config.boolean("tie_word_embeddings", false);
  decoder.activation = read_activation(config, "hidden_act", "silu");
  if (keys.positions == PositionKind::rotary && decoder.positions.rotary.rotary_dim % 2 != 0) {
    config.reject("head_dim",
                  std::to_string(decoder.attention.head_dim) + " is odd, but rotary embedding needs an even number");
  }
  return decoder;
}

std::int32_t read_window(ConfigSource& config) {
  const std::int64_t default_window = config.mentions("sliding_window") ? 0 : 4096;
  return static_cast<std::int32_t>(config.integer("sliding_window", 1, kMaxPositions, default_window));
}

void read_optional_window(ConfigSource& config, GatedDecoderConfig& decoder) {
  if (!config.boolean("use_sliding_window", false)) return;
  const std::int32_t window = read_window(config);
  if (window == 0) return;
  const auto first = config.integer("max_window_layers", 0, kMaxLayers, 28);
  const auto types = config.strings("layer_types", decoder.num_layers, {"full_attention", "sliding_attention"});
  if (!config.status()) return;
  for (std::int64_t layer = 0; layer < decoder.num_layers; ++layer) {
    const bool slides = types ? types->at(static_cast<std::size_t>(layer)) == "sliding_attention" : layer >= first;
    decoder.layer_windows.push_back(slides ? window : 0);
  }
  if (std::ranges::adjacent_find(decoder.layer_windows, std::not_equal_to{}) == decoder.layer_windows.end()) {
    decoder.attention.window = decoder.layer_windows.front();
    decoder.layer_windows.clear();
  }
}

}  // namespace pagoda::models

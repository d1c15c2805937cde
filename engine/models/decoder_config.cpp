// Reads the config keys that decoders share.

#include "engine/models/decoder_config.hpp"

#include <algorithm>
#include <optional>
#include <string>

#include "engine/layers/mlp.hpp"
#include "engine/models/rope_config.hpp"

namespace pagoda::models {
namespace {

using layers::AttentionShape;
using layers::PositionKind;

/// Reads head_dim. If neither the config nor the family (`default_dim`) gives it, it is computed from the hidden size.
std::int64_t read_head_dim(ConfigSource& config, const DecoderConfig& decoder, std::int64_t default_dim) {
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

std::int64_t read_size(ConfigSource& config, const char* key, std::int64_t max, std::int64_t default_size) {
  return config.integer(key, 1, max, default_size > 0 ? std::optional(default_size) : std::nullopt);
}

AttentionShape read_heads(ConfigSource& config, const DefaultSizes& sizes) {
  AttentionShape shape;
  shape.num_heads = read_size(config, "num_attention_heads", kMaxHeads, sizes.num_heads);
  shape.num_kv_heads = config.integer("num_key_value_heads", 1, kMaxHeads,
                                      sizes.num_kv_heads > 0 ? sizes.num_kv_heads : shape.num_heads);
  if (shape.num_heads % shape.num_kv_heads != 0) {
    config.reject("num_key_value_heads", std::to_string(shape.num_kv_heads) + " does not divide num_attention_heads " +
                                             std::to_string(shape.num_heads));
  }
  return shape;
}

}  // namespace

layers::AttentionShape DecoderConfig::attention_of(std::int64_t layer) const {
  const LayerShape& shape = layer_shapes.at(static_cast<std::size_t>(layer));
  layers::AttentionShape result = attention;
  result.window = shape.window;
  result.position_table = shape.position_table;
  return result;
}

DecoderConfig DecoderConfig::of_rank(const RankPlace& rank) const {
  PAGODA_ASSERT(place == RankPlace{}, "only a whole model is divided");
  DecoderConfig part = *this;
  part.place = rank;
  part.stage_layers = layers_of_stage(*this, rank);
  const weights::Range heads = range_of_rank(attention.num_heads, 1, rank);
  part.attention.num_heads = heads.size();
  part.attention.num_kv_heads = kv_heads_of_rank(attention.num_kv_heads, rank).size();
  part.intermediate_size = mlp_columns_of_rank(intermediate_size, rank).size();
  for (layers::PositionShape& shape : part.positions) {
    shape.first_head = heads.begin;
    shape.heads_of_rank = heads.size();
  }
  return part;
}

layers::VocabPart DecoderConfig::vocab_part() const {
  const weights::Range rows = range_of_rank(vocab_size, 1, place);
  return {.first_row = rows.begin, .num_rows = rows.size(), .vocab_size = vocab_size};
}

KvGrouping DecoderConfig::kv_grouping() const {
  std::vector<layers::AttentionShape> all;
  for (std::int64_t i = 0; i < num_layers(); ++i) all.push_back(attention_of(i));
  KvGrouping grouping = group_layers(all);
  if (place.num_stages == 1) return grouping;
  for (KvShape& group : grouping.groups) group.num_layers = 0;
  for (std::int64_t i = layers().begin; i < layers().end; ++i) {
    layers::KvPlace& its_place = grouping.places[static_cast<std::size_t>(i)];
    its_place.layer =
        static_cast<std::int32_t>(grouping.groups[static_cast<std::size_t>(its_place.group)].num_layers++);
  }
  return grouping;
}

std::int32_t DecoderConfig::common_window() const {
  const auto same = [&](const LayerShape& layer) { return layer.window == layer_shapes.front().window; };
  return !layer_shapes.empty() && std::ranges::all_of(layer_shapes, same) ? layer_shapes.front().window : 0;
}

void DecoderConfig::set_window_of_all_layers(std::int32_t window) {
  for (LayerShape& layer : layer_shapes) layer.window = window;
}

std::int32_t DecoderConfig::largest_window() const {
  std::int32_t largest = 0;
  for (const LayerShape& layer : layer_shapes) largest = std::max(largest, layer.window);
  return largest;
}

std::int64_t DecoderConfig::num_layers_with_window() const {
  return std::ranges::count_if(layer_shapes, [](const LayerShape& layer) { return layer.window > 0; });
}

DecoderConfig read_decoder(ConfigSource& config, const DecoderKeys& keys) {
  DecoderConfig decoder;
  decoder.vocab_size = read_size(config, "vocab_size", kMaxVocab, keys.sizes.vocab_size);
  decoder.hidden_size = config.integer("hidden_size", 1, kMaxWidth);
  decoder.intermediate_size = config.integer("intermediate_size", 1, kMaxWidth);
  decoder.layer_shapes.resize(static_cast<std::size_t>(config.integer("num_hidden_layers", 1, kMaxLayers)));
  decoder.attention = read_heads(config, keys.sizes);
  decoder.max_position_embeddings = read_size(config, keys.max_positions, kMaxPositions, keys.sizes.max_positions);
  decoder.attention.head_dim = read_head_dim(config, decoder, keys.default_head_dim);
  decoder.norm_eps = config.number(keys.norm_eps, 0.0, keys.default_norm_eps);
  decoder.positions = {{
      .kind = keys.positions,
      .rotary = read_rope(config, {.head_dim = decoder.attention.head_dim,
                                   .max_position_embeddings = decoder.max_position_embeddings,
                                   .default_theta = keys.default_theta,
                                   .partial = keys.partial_rotary}),
      .num_heads = decoder.attention.num_heads,
  }};
  decoder.tie_word_embeddings = config.boolean("tie_word_embeddings", keys.tied_by_default);
  decoder.activation = read_activation(config, keys.activation, keys.default_activation);
  if (keys.positions == PositionKind::rotary && decoder.positions.front().rotary.rotary_dim % 2 != 0) {
    config.reject("head_dim",
                  std::to_string(decoder.attention.head_dim) + " is odd, but rotary embedding needs an even number");
  }
  return decoder;
}

void set_learned_positions(ConfigSource& config, DecoderConfig& decoder, std::int64_t num_heads, const char* hidden_key,
                           const char* heads_key) {
  decoder.positions.resize(1);
  decoder.positions.front().kind = PositionKind::learned;
  decoder.attention = {.num_heads = num_heads, .num_kv_heads = num_heads, .head_dim = decoder.hidden_size / num_heads};
  if (decoder.hidden_size % num_heads != 0) {
    config.reject(hidden_key, std::to_string(decoder.hidden_size) + " is not a multiple of " + heads_key + " " +
                                  std::to_string(num_heads));
  }
}

kernels::Activation read_activation(ConfigSource& config, const char* key, const char* default_name) {
  const auto activation = layers::activation_of(config.string(key, default_name));
  if (!activation) config.reject(key, config.shown(key) + " is not supported", ErrorCode::unsupported);
  return activation.value_or(kernels::Activation::silu);
}

std::int32_t read_window(ConfigSource& config) {
  const std::int64_t default_window = config.mentions("sliding_window") ? 0 : 4096;
  return static_cast<std::int32_t>(config.integer("sliding_window", 1, kMaxPositions, default_window));
}

void read_layer_windows(ConfigSource& config, DecoderConfig& decoder, std::int32_t window, std::int64_t full_interval) {
  const auto types = config.strings("layer_types", decoder.num_layers(), {"full_attention", "sliding_attention"});
  if (!config.status()) return;
  for (std::int64_t layer = 0; layer < decoder.num_layers(); ++layer) {
    const bool slides = types ? types->at(static_cast<std::size_t>(layer)) == "sliding_attention"
                              : full_interval == 0 || (layer + 1) % full_interval != 0;
    if (slides) decoder.layer_shapes[static_cast<std::size_t>(layer)].window = window;
  }
}

void read_optional_window(ConfigSource& config, DecoderConfig& decoder) {
  if (!config.boolean("use_sliding_window", false)) return;
  const std::int32_t window = read_window(config);
  const auto first = config.integer("max_window_layers", 0, kMaxLayers, 28);
  if (config.has("layer_types")) return read_layer_windows(config, decoder, window, 0);
  for (std::int64_t layer = first; layer < decoder.num_layers(); ++layer) {
    decoder.layer_shapes[static_cast<std::size_t>(layer)].window = window;
  }
}

}  // namespace pagoda::models

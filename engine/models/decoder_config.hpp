#pragma once

#include <cstdint>
#include <vector>

#include "engine/layers/attention.hpp"
#include "engine/layers/embedding.hpp"
#include "engine/layers/positions.hpp"
#include "engine/models/config_source.hpp"
#include "engine/models/kv_grouping.hpp"
#include "engine/models/rank_slices.hpp"
#include "kernels/ops.hpp"

namespace pagoda::models {

/// The differences between the attention of one layer and that of another layer of the same model.
struct LayerShape {
  std::int32_t window = 0;          ///< see AttentionShape::window
  std::int32_t position_table = 0;  ///< see AttentionShape::position_table

  bool operator==(const LayerShape&) const = default;
};

/// The config values that all decoders have. What a family has beyond them is in the code of the family.
struct DecoderConfig {
  std::int64_t vocab_size = 0;
  std::int64_t hidden_size = 0;
  std::int64_t intermediate_size = 0;  ///< width of the rows inside the MLP
  std::int64_t max_position_embeddings = 0;
  layers::AttentionShape attention;      ///< of every layer, except for the values of its LayerShape
  std::vector<LayerShape> layer_shapes;  ///< one entry for each layer
  /// The position constants of attention. A layer's position_table is an index of this list.
  std::vector<layers::PositionShape> positions;
  kernels::Activation activation = kernels::Activation::silu;
  double norm_eps = 1e-6;
  bool tie_word_embeddings = false;
  /// The rank whose layers these are: heads and MLP are its part of the model's. The vocabulary is always whole here,
  /// and the layers of all stages are in layer_shapes.
  RankPlace place;
  weights::Range stage_layers;  ///< see layers(); set by of_rank

  /// Returns the config of one of the ranks that compute this whole model together.
  DecoderConfig of_rank(const RankPlace& rank) const;
  /// Returns the layers of the stage.
  weights::Range layers() const { return place.num_stages == 1 ? weights::Range{0, num_layers()} : stage_layers; }
  /// Returns the rows of the embedding and of the head that the rank has.
  layers::VocabPart vocab_part() const;

  std::int64_t num_layers() const { return static_cast<std::int64_t>(layer_shapes.size()); }
  layers::AttentionShape attention_of(std::int64_t layer) const;
  /// Returns the groups of all stages, with the layers of this stage. A group may have none of them.
  KvGrouping kv_grouping() const;
  layers::KvPlace kv_place(std::int64_t layer) const {
    return kv_grouping().places.at(static_cast<std::size_t>(layer));
  }
  /// Returns the window that all layers have; 0 when they have none or differ.
  std::int32_t common_window() const;
  void set_window_of_all_layers(std::int32_t window);
  /// Returns the largest window of a layer; 0 when no layer has a window.
  std::int32_t largest_window() const;
  std::int64_t num_layers_with_window() const;
};

/// Sizes of a config without their keys. 0 = the key must be present.
struct DefaultSizes {
  std::int64_t vocab_size = 0;
  std::int64_t max_positions = 0;
  std::int64_t num_heads = 0;
  std::int64_t num_kv_heads = 0;  ///< 0 = the number of heads
};

/// The keys and defaults that distinguish a family's config from Llama's.
struct DecoderKeys {
  layers::PositionKind positions = layers::PositionKind::rotary;
  const char* max_positions = "max_position_embeddings";
  const char* activation = "hidden_act";
  const char* default_activation = "silu";
  const char* norm_eps = "rms_norm_eps";
  double default_norm_eps = 1e-6;
  std::int64_t default_head_dim = 0;  ///< 0 = computed from the hidden size
  double default_theta = 10000.0;     ///< of rotary positions
  bool partial_rotary = false;        ///< whether rotary positions may rotate only the first part of each head
  bool tied_by_default = false;       ///< whether the head is the embedding unless the config says otherwise
  DefaultSizes sizes{};
};

/// Reads the keys that Llama and its relatives share: sizes, heads, positions, activation, tied head. The layers have
/// no windows.
DecoderConfig read_decoder(ConfigSource& config, const DecoderKeys& keys = {});

/// Sets learned positions, and attention with one KV head for each head. `hidden_key`, `heads_key`: the family's names
/// of the two sizes, for an error message.
void set_learned_positions(ConfigSource& config, DecoderConfig& decoder, std::int64_t num_heads, const char* hidden_key,
                           const char* heads_key);

/// Reads the activation that `key` names. An activation without an op is unsupported.
kernels::Activation read_activation(ConfigSource& config, const char* key, const char* default_name);

/// Returns the number of tokens that a token of a layer attends to; 0 = all, which null means. Without the key it is
/// 4096, the default of transformers.
std::int32_t read_window(ConfigSource& config);

/// Gives `window` to the layers that layer_types marks as "sliding_attention"; without layer_types, to all layers
/// except every `full_interval`-th one. 0 = to all layers.
void read_layer_windows(ConfigSource& config, DecoderConfig& decoder, std::int32_t window, std::int64_t full_interval);

/// If use_sliding_window is true, gives the window to the layers that layer_types marks; without layer_types, to the
/// layers from max_window_layers on.
void read_optional_window(ConfigSource& config, DecoderConfig& decoder);

}  // namespace pagoda::models

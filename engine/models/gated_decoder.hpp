#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "engine/layers/mlp.hpp"
#include "engine/layers/weight_loader.hpp"
#include "engine/models/decoder.hpp"

namespace pagoda::models {

/// A pre-norm decoder with RMSNorm, rotary positions or ALiBi, grouped-query attention and a gated MLP. Its weights
/// have the names of Hugging Face's Llama. Llama (Touvron et al. 2023) and most families after it are of this kind.
struct GatedDecoderConfig : DecoderConfig {
  /// Loads the MLP of layer `index` from the module of that layer.
  using LoadMlp = std::function<std::unique_ptr<layers::Mlp>(const layers::WeightLoader& layer, std::int64_t index)>;

  double norm_eps = 1e-6;
  std::vector<std::int32_t> layer_windows;  ///< window of each layer if the layers differ; attention.window is 0 then
  bool attention_bias = false;              ///< whether the query, key and value projections have biases
  bool attention_output_bias = false;
  bool mlp_bias = false;
  bool head_norms = false;           ///< whether queries and keys of each head are normalised (q_norm, k_norm)
  const char* packed_qkv = nullptr;  ///< module with query, key and value weights in one; null: q_proj, k_proj, v_proj
  const char* packed_gate_up = nullptr;  ///< module with gate and value weights in one; null: gate_proj, up_proj
  bool normalized_head = false;          ///< whether the rows of the head's weight are scaled to length 1
  LoadMlp load_mlp;                      ///< if empty: a GatedMlp of gate and values, and down_proj
};

ModelSpec spec_of(const GatedDecoderConfig& config);

/// The differences between a family's config and Llama's, where both have the same keys.
struct GatedDecoderKeys {
  layers::PositionKind positions = layers::PositionKind::rotary;
  const char* max_positions = "max_position_embeddings";
  std::int64_t default_head_dim = 0;  ///< 0 = computed from the hidden size
  bool partial_rotary = false;        ///< whether rotary positions may rotate only the first part of each head
};

/// Reads the keys that Llama and its relatives share: sizes, rope, activation, tied head. Reads no windows and no
/// biases.
GatedDecoderConfig read_gated_decoder(ConfigSource& config, const GatedDecoderKeys& keys = {});

/// Returns the number of tokens that a token of a layer attends to; 0 = all, which null means. Without the key it is
/// 4096, the default of transformers.
std::int32_t read_window(ConfigSource& config);

/// If use_sliding_window is true, gives the window to the layers that layer_types marks; without layer_types, to the
/// layers from max_window_layers on.
void read_optional_window(ConfigSource& config, GatedDecoderConfig& decoder);

}  // namespace pagoda::models

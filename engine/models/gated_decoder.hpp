#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "engine/layers/mlp.hpp"
#include "engine/layers/weight_loader.hpp"
#include "engine/models/decoder.hpp"

namespace pagoda::models {

/// A pre-norm decoder with RMSNorm, rotary positions or ALiBi, grouped-query attention and an MLP with a gate, its
/// weights named as in Hugging Face's Llama. Llama (Touvron et al. 2023) and most families after it are of this kind.
struct GatedDecoderConfig : DecoderConfig {
  /// The MLP of layer `index`, from the module of that layer.
  using LoadMlp = std::function<std::unique_ptr<layers::Mlp>(const layers::WeightLoader& layer, std::int64_t index)>;

  double norm_eps = 1e-6;
  std::vector<std::int32_t> layer_windows;  ///< windows of the layers where they differ, and attention.window is 0
  bool attention_bias = false;              ///< of the query, key and value projections
  bool attention_output_bias = false;
  bool mlp_bias = false;
  bool head_norms = false;           ///< queries and keys of each head are normalised (q_norm, k_norm)
  const char* packed_qkv = nullptr;  ///< module with query, key and value weights in one; null: q_proj, k_proj, v_proj
  const char* packed_gate_up = nullptr;  ///< module with gate and value weights in one; null: gate_proj, up_proj
  bool normalized_head = false;          ///< rows of the head's weight are scaled to length 1
  LoadMlp load_mlp;                      ///< none: a GatedMlp of gate and values, and down_proj
};

ModelSpec spec_of(const GatedDecoderConfig& config);

/// How a family's config differs from Llama's where all have the same keys.
struct GatedDecoderKeys {
  layers::PositionKind positions = layers::PositionKind::rotary;
  const char* max_positions = "max_position_embeddings";
  std::int64_t default_head_dim = 0;  ///< 0 = it follows from the hidden size
  bool partial_rotary = false;        ///< rotary positions may turn the first part of each head only
};

/// What Llama and its relatives say alike: sizes, rope, activation, tied head. No windows and no biases.
GatedDecoderConfig read_gated_decoder(ConfigSource& config, const GatedDecoderKeys& keys = {});

/// Tokens that a layer sees back; 0 = all, which is what null says. Without the key it is the 4096 of transformers.
std::int32_t read_window(ConfigSource& config);

/// With use_sliding_window, gives it to the layers that layer_types marks, or where that is absent to those from
/// max_window_layers on.
void read_optional_window(ConfigSource& config, GatedDecoderConfig& decoder);

}  // namespace pagoda::models

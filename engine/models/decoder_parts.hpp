#pragma once

/// Parts that several families have. Tensors have the names of Llama.

#include <cstdint>
#include <functional>
#include <memory>
#include <span>

#include "engine/layers/attention.hpp"
#include "engine/layers/embedding.hpp"
#include "engine/layers/linear.hpp"
#include "engine/layers/mlp.hpp"
#include "engine/layers/norm.hpp"
#include "engine/layers/weight_loader.hpp"
#include "engine/models/decoder_config.hpp"

namespace pagoda::models {

/// Returns the norm `module` over hidden rows.
layers::RmsNorm load_norm(const layers::WeightLoader& module, const DecoderConfig& config, float weight_offset = 0.0F);

/// Returns one Linear over q_proj, k_proj and v_proj.
layers::QkvProjection load_qkv(const layers::WeightLoader& attention, const DecoderConfig& config, bool bias = false);

/// Returns q_proj, k_proj and v_proj with the norms q_norm and k_norm over each head.
layers::QkvProjection load_qkv_with_norms(const layers::WeightLoader& attention, const DecoderConfig& config, bool bias,
                                          float weight_offset = 0.0F);

/// Returns `name`, a Linear whose rows are queries, keys and values.
layers::QkvProjection load_packed_qkv(const layers::WeightLoader& attention, const char* name,
                                      const DecoderConfig& config);

/// Returns o_proj.
layers::Linear load_attention_output(const layers::WeightLoader& attention, const DecoderConfig& config,
                                     bool bias = false);

/// Returns gate_proj, up_proj and down_proj.
std::unique_ptr<layers::Mlp> load_gated_mlp(const layers::WeightLoader& mlp, const DecoderConfig& config,
                                            bool bias = false);

/// Returns gate_up_proj and down_proj.
std::unique_ptr<layers::Mlp> load_packed_gated_mlp(const layers::WeightLoader& mlp, const DecoderConfig& config);

/// Returns `module`, the embedding of tokens to rows of `width` elements; empty behind the first stage.
layers::Embedding load_embedding(const layers::WeightLoader& module, const DecoderConfig& config, std::int64_t width,
                                 float factor = 1.0F);

/// Returns lm_head, or the embedding as the head if the two are tied; empty before the last stage.
layers::Linear load_head(const layers::WeightLoader& root, const DecoderConfig& config);
/// The same for an embedding with another name, whose rows have `width` elements.
layers::Linear load_head(const layers::WeightLoader& root, const layers::WeightLoader& embedding,
                         const DecoderConfig& config, std::int64_t width);

/// Returns one layer for each layer of the stage of `config`. Ends at the first error of the loader. Tells adapters
/// what keys and values the layers of the model have.
template <class Layer>
std::vector<Layer> load_layers(
    const layers::WeightLoader& layers, const DecoderConfig& config,
    const std::function<Layer(const layers::WeightLoader& layer, std::int64_t index)>& load) {
  const layers::AttentionShape& attention = config.attention;
  layers.modules()->set_kv({config.num_layers(), attention.num_kv_heads, attention.head_dim});
  std::vector<Layer> result;
  for (std::int64_t i = config.layers().begin; i < config.layers().end && layers.status(); ++i) {
    result.push_back(load(layers / i, i));
  }
  return result;
}

/// A layer of GPT-2 and OPT: attention and MLP, each with a LayerNorm.
struct LayerNormLayer {
  layers::LayerNorm attention_norm;
  layers::Attention attention;
  layers::LayerNorm mlp_norm;
  std::unique_ptr<layers::Mlp> mlp;
};

/// Runs `all_layers`, in which attention and MLP each read a norm of the residual stream and are added to it.
void run_pre_norm(layers::ForwardPass& pass, const layers::Activations& activations,
                  std::span<const layers::PositionTables> positions, std::span<const LayerNormLayer> all_layers);

}  // namespace pagoda::models

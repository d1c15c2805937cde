#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "engine/layers/attention.hpp"
#include "engine/layers/mlp.hpp"
#include "engine/layers/norm.hpp"
#include "engine/layers/weight_loader.hpp"
#include "engine/models/decoder_config.hpp"
#include "engine/models/decoder_parts.hpp"
#include "engine/models/model_spec.hpp"

namespace pagoda::models {

/// A layer of Llama (Touvron et al. 2023) and of the families that follow it: attention and MLP each read a norm of the
/// residual stream and are added to it.
struct LlamaLayer {
  layers::RmsNorm attention_norm;
  layers::Attention attention;
  layers::RmsNorm mlp_norm;
  std::unique_ptr<layers::Mlp> mlp;
};

/// The code of a family that loads its weights. The functions are called when the model is built and own what they use.
struct LlamaWeights {
  std::function<LlamaLayer(const layers::WeightLoader& layer, const DecoderConfig& config, std::int64_t index)> layer;
  std::function<layers::Linear(const layers::WeightLoader& root, const DecoderConfig& config)> head =
      static_cast<layers::Linear (*)(const layers::WeightLoader&, const DecoderConfig&)>(load_head);
};

/// Factors of a forward pass that is Llama's otherwise.
struct LlamaFactors {
  double embedding = 1.0;
  double logits = 1.0;
};

/// Returns the spec of a decoder with the forward pass of Llama. All its weights except those of layers and head have
/// the names of Llama.
ModelSpec llama_decoder(const DecoderConfig& config, LlamaWeights weights, const LlamaFactors& factors = {});

/// Returns a layer under the names of Llama with the query, key and value projections and the MLP of the caller.
LlamaLayer llama_layer(const layers::WeightLoader& layer, const DecoderConfig& config, std::int64_t index,
                       layers::QkvProjection qkv, std::unique_ptr<layers::Mlp> mlp, bool output_bias = false);

/// Returns the weights of Llama: each projection has its own tensor.
LlamaWeights llama_weights(bool attention_bias, bool mlp_bias);

}  // namespace pagoda::models

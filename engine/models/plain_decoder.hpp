#pragma once

#include <optional>
#include <vector>

#include "engine/layers/attention.hpp"
#include "engine/layers/embedding.hpp"
#include "engine/layers/mlp.hpp"
#include "engine/layers/norm.hpp"
#include "engine/layers/positions.hpp"
#include "engine/models/registry.hpp"

namespace pagoda::models {

struct PlainDecoderLayer {
  layers::LayerNorm attention_norm;
  layers::Attention attention;
  layers::LayerNorm mlp_norm;
  layers::Mlp mlp;
};

/// The weights of a decoder with LayerNorm, learned positions and an MLP without a gate, under our names.
struct PlainDecoderWeights {
  layers::Embedding tokens;                  ///< [vocab_size, embedding_size]
  layers::Embedding positions;               ///< [at least max_position_embeddings, hidden_size]
  std::optional<layers::Linear> project_in;  ///< embedding_size -> hidden_size
  std::vector<PlainDecoderLayer> layers;
  bool post_norm = false;                       ///< norms follow attention and MLP instead of leading them
  std::optional<layers::LayerNorm> final_norm;  ///< none only with post_norm
  std::optional<layers::Linear> project_out;    ///< hidden_size -> embedding_size
  layers::LmHead head;
};

/// The model of these weights. Errors: out_of_memory.
Result<std::unique_ptr<Model>> create_plain_decoder(const ModelParts& parts, PlainDecoderWeights weights);

}  // namespace pagoda::models

#pragma once

#include "engine/models/registry.hpp"

namespace pagoda::models {

/// How a decoder of Llama's kind differs from its relatives, beyond what its config says.
struct GatedDecoderTraits {
  const char* packed_qkv =
      nullptr;              ///< module that holds the query, key and value weights in one; null: q_proj, k_proj, v_proj
  bool head_norms = false;  ///< queries and keys of each head are normalised (q_norm, k_norm)
};

/// A pre-norm decoder with RMSNorm, rotary positions or ALiBi, grouped-query attention and a gated MLP, its weights
/// named as in Hugging Face's Llama. Llama (Touvron et al. 2023) and most families after it are of this kind.
Result<std::unique_ptr<Model>> create_gated_decoder(const ModelParts& parts, const GatedDecoderTraits& traits);

}  // namespace pagoda::models

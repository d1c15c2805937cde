#pragma once

#include <array>
#include <cstdint>

#include "engine/models/decoder.hpp"

namespace pagoda::models {

/// What a family calls the modules of a plain decoder.
struct PlainDecoderNames {
  /// The decoder within the checkpoint; and within one that leaves out the outer module, where "" is the checkpoint.
  std::array<const char*, 2> models{};
  const char* tokens = nullptr;
  const char* positions = nullptr;
  const char* project_in = nullptr;   ///< of a decoder whose embedding may have another width
  const char* project_out = nullptr;  ///< likewise
  const char* final_norm = nullptr;
  const char* layers = nullptr;
  // of a layer
  const char* attention_norm = nullptr;
  std::array<const char*, 3> qkv{};  ///< of queries, keys and values; or one that holds them all, and null
  const char* attention_output = nullptr;
  const char* mlp_norm = nullptr;
  const char* up = nullptr;
  const char* down = nullptr;
};

/// A decoder with LayerNorm before or after each part, learned positions, as many KV heads as heads, and an MLP without
/// a gate. GPT-2 (Radford et al. 2019) and OPT (Zhang et al. 2022) are of this kind.
struct PlainDecoderConfig : DecoderConfig {
  std::int64_t embedding_size = 0;   ///< width of the token embedding; other than hidden_size: projected
  std::int64_t position_offset = 0;  ///< rows that the position table has in front of position 0
  double norm_eps = 1e-5;
  bool biases = true;               ///< attention and MLP have them
  bool post_norm = false;           ///< norms follow attention and MLP instead of leading them
  bool final_norm = true;           ///< a norm stands before the head; only a post-norm decoder may go without
  bool affine_norms = true;         ///< norms have a weight and a bias
  bool transposed_weights = false;  ///< of attention and MLP: stored as [in, out]
  PlainDecoderNames names;
};

ModelSpec spec_of(const PlainDecoderConfig& config);

/// One key and value head for each head. `hidden_key`, `heads_key`: what the family calls the sizes that must fit.
void set_heads(ConfigSource& config, PlainDecoderConfig& decoder, std::int64_t num_heads, const char* hidden_key,
               const char* heads_key);

}  // namespace pagoda::models

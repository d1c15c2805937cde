#pragma once

#include <array>
#include <cstdint>

#include "engine/models/decoder.hpp"

namespace pagoda::models {

/// The names of the modules of a plain decoder in a family's checkpoints.
struct PlainDecoderNames {
  /// Name of the decoder within the checkpoint; and its name in a checkpoint without the outer module, "" for the
  /// checkpoint itself.
  std::array<const char*, 2> models{};
  const char* tokens = nullptr;
  const char* positions = nullptr;
  const char* project_in = nullptr;   ///< set if the embedding may have another width than the layers
  const char* project_out = nullptr;  ///< set with project_in
  const char* final_norm = nullptr;
  const char* layers = nullptr;
  // names within a layer
  const char* attention_norm = nullptr;
  std::array<const char*, 3> qkv{};  ///< queries, keys and values; or one name for all three, then null
  const char* attention_output = nullptr;
  const char* mlp_norm = nullptr;
  const char* up = nullptr;
  const char* down = nullptr;
};

/// A decoder with LayerNorm before or after each part, learned positions, one KV head for each head, and an MLP without
/// a gate. GPT-2 (Radford et al. 2019) and OPT (Zhang et al. 2022) are of this kind.
struct PlainDecoderConfig : DecoderConfig {
  std::int64_t embedding_size = 0;   ///< width of the token embedding, which is projected if it is not hidden_size
  std::int64_t position_offset = 0;  ///< rows of the position table in front of position 0
  double norm_eps = 1e-5;
  bool biases = true;               ///< whether attention and MLP have biases
  bool post_norm = false;           ///< whether norms follow attention and MLP instead of preceding them
  bool final_norm = true;           ///< whether a norm stands before the head; a pre-norm decoder must have it
  bool affine_norms = true;         ///< whether norms have a weight and a bias
  bool transposed_weights = false;  ///< whether the weights of attention and MLP are stored as [in, out]
  PlainDecoderNames names;
};

ModelSpec spec_of(const PlainDecoderConfig& config);

/// Sets learned positions, and attention with one KV head for each head. `hidden_key`, `heads_key`: the family's names
/// of the two sizes, for an error message.
void set_heads(ConfigSource& config, PlainDecoderConfig& decoder, std::int64_t num_heads, const char* hidden_key,
               const char* heads_key);

}  // namespace pagoda::models

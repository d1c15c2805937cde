#pragma once

#include <cstdint>

#include "engine/layers/activations.hpp"
#include "engine/layers/forward_pass.hpp"
#include "engine/layers/linear.hpp"
#include "engine/layers/rotary.hpp"

namespace pagoda::layers {

/// What all layers of a model have in common in their attention.
struct AttentionShape {
  std::int64_t num_layers = 0;  ///< that share one KV block
  std::int64_t num_heads = 0;
  std::int64_t num_kv_heads = 0;
  std::int64_t head_dim = 0;
  std::int32_t window = 0;              ///< sliding window in tokens; 0 = none
  const RotaryTable* rotary = nullptr;  ///< null: positions come in elsewhere

  std::int64_t query_width() const { return num_heads * head_dim; }
  std::int64_t kv_width() const { return num_kv_heads * head_dim; }
};

/// Multi-head attention with grouped keys and values over the paged KV cache: project, rotate, store, attend, project.
class Attention {
 public:
  /// `qkv` gives queries, keys and values side by side in a row, `output` projects back to the hidden size.
  Attention(std::int64_t layer, const AttentionShape& shape, Linear qkv, Linear output);

  /// activations.hidden: [num_tokens, hidden_size], in place.
  void operator()(ForwardPass& pass, const Activations& activations) const;

 private:
  kernels::KvCacheView cache_of_layer(const models::KvCache& cache) const;

  std::int64_t layer_;
  AttentionShape shape_;
  Linear qkv_;
  Linear output_;
};

}  // namespace pagoda::layers

#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "engine/layers/activations.hpp"
#include "engine/layers/forward_pass.hpp"
#include "engine/layers/linear.hpp"
#include "engine/layers/norm.hpp"
#include "engine/layers/positions.hpp"

namespace pagoda::layers {

/// The dimensions of one layer's attention and how it sees positions.
struct AttentionShape {
  std::int64_t layer = 0;
  std::int64_t num_layers = 0;  ///< that share one KV block
  std::int64_t num_heads = 0;
  std::int64_t num_kv_heads = 0;
  std::int64_t head_dim = 0;
  std::int32_t window = 0;              ///< tokens seen back, itself included; 0 = all
  const float* cos_sin = nullptr;       ///< of PositionTables; null = not rotary
  const float* alibi_slopes = nullptr;  ///< of PositionTables; null = no ALiBi

  std::int64_t query_width() const { return num_heads * head_dim; }
  std::int64_t kv_width() const { return num_kv_heads * head_dim; }
};

/// The shape that `config` gives `layer`. `positions` must outlive it.
AttentionShape attention_shape(const models::ModelConfig& config, std::int64_t layer, const PositionTables& positions);

/// Norms over the queries and keys of each single head.
struct HeadNorms {
  RmsNorm query;
  RmsNorm key;
};

/// The projections to queries, keys and values: one Linear that gives the three side by side in a row, or one for each.
struct QkvProjection {
  std::vector<Linear> parts;
  std::optional<HeadNorms> head_norms = std::nullopt;  ///< need one part for each
};

/// Multi-head attention with grouped keys and values over the paged KV cache: project, rotate, store, attend, project.
class Attention {
 public:
  Attention(const AttentionShape& shape, QkvProjection qkv, Linear output);

  /// See Linear::input_type.
  DType input_type(const ForwardPass& pass) const;

  /// in, out: [num_tokens, hidden_size]; out may be in, if it is set.
  void operator()(ForwardPass& pass, const Activations& activations, const Rows& in, float* out, Into into) const;

 private:
  /// Where the batch's queries, keys and values lie, and the floats from one token's to the next.
  struct Heads {
    float* query = nullptr;
    float* key = nullptr;
    float* value = nullptr;
    std::int64_t query_stride = 0;
    std::int64_t kv_stride = 0;
  };

  Heads project(ForwardPass& pass, const Rows& hidden, float* out) const;
  kernels::KvCacheView cache_of_layer(const KvCache& cache) const;

  AttentionShape shape_;
  QkvProjection qkv_;
  Linear output_;
};

}  // namespace pagoda::layers

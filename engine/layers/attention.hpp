#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "engine/layers/activations.hpp"
#include "engine/layers/forward_pass.hpp"
#include "engine/layers/linear.hpp"
#include "engine/layers/norm.hpp"
#include "engine/layers/positions.hpp"

namespace pagoda::layers {

inline constexpr std::int32_t kNoPositions = -1;

/// The dimensions of one layer's attention.
struct AttentionShape {
  std::int64_t num_heads = 0;
  std::int64_t num_kv_heads = 0;  ///< divides num_heads
  std::int64_t head_dim = 0;
  std::int32_t window = 0;          ///< number of tokens that a token attends to, itself included; 0 = all
  std::int32_t first_position = 0;  ///< the first position that has keys and values
  /// Index of the model's position table that the layer uses; kNoPositions: the layer ignores positions.
  std::int32_t position_table = 0;
  double scale = 0.0;    ///< factor of the products of queries and keys; 0 = 1 / sqrt(head_dim)
  double softcap = 0.0;  ///< see PagedAttentionParams::softcap; 0 = none

  std::int64_t query_width() const { return num_heads * head_dim; }
  std::int64_t kv_width() const { return num_kv_heads * head_dim; }
  /// Returns the widths of the working rows (see ActivationShape): queries, keys and values in one row; the output of
  /// attention.
  std::array<std::int64_t, 2> work_widths() const { return {query_width() + 2 * kv_width(), query_width()}; }
  /// Returns the bytes that one layer keeps in a KV block: keys and values, with their scales.
  std::int64_t kv_bytes(std::int32_t block_size, DType kv_dtype) const;
};

/// The place of a layer's keys and values in KV blocks.
struct KvPlace {
  KvGroupId group = 0;           ///< index of ModelSpec::kv
  std::int32_t layer = 0;        ///< index of the layer among the layers of the group
  std::int32_t model_layer = 0;  ///< index of the layer among all layers
};

/// Norms over the queries and the keys of each head.
struct HeadNorms {
  RmsNorm query;
  RmsNorm key;
};

/// The projections to queries, keys and values: one Linear whose output row holds all three side by side, or three
/// Linears.
struct QkvProjection {
  std::vector<Linear> parts;
  std::optional<HeadNorms> head_norms = std::nullopt;  ///< set only with three parts
};

/// Multi-head attention with grouped keys and values over the paged KV cache: project, rotate, store, attend, project.
class Attention {
 public:
  Attention(const AttentionShape& shape, KvPlace kv, QkvProjection qkv, Linear output);

  /// See Linear::input_type.
  DType input_type(const ForwardPass& pass) const;

  /// in, out: [num_tokens, hidden_size]. With Accumulate::no, `out` may be the memory of `in`. `positions`: the tables
  /// of the model, of which the layer uses its own.
  void operator()(ForwardPass& pass, const Activations& activations, std::span<const PositionTables> positions,
                  const Rows& in, float* out, Accumulate accumulate) const;

 private:
  /// Addresses of the batch's queries, keys and values, and the number of floats from one token to the next.
  struct Heads {
    float* query = nullptr;
    float* key = nullptr;
    float* value = nullptr;
    std::int64_t query_stride = 0;
    std::int64_t kv_stride = 0;
  };

  Heads project(ForwardPass& pass, const Rows& hidden, float* out) const;
  void rotate(ForwardPass& pass, const Heads& heads, const PositionTables& positions) const;
  /// Writes the keys and values of all tokens to the cache: those of the batch's prefixes in place of their own.
  void store(ForwardPass& pass, const Heads& heads, const kernels::KvCacheView& cache) const;
  kernels::KvCacheView cache_of_layer(const KvCache& cache) const;

  AttentionShape shape_;
  KvPlace kv_;
  QkvProjection qkv_;
  Linear output_;
};

}  // namespace pagoda::layers

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "kernels/reference/element.hpp"
#include "kernels/reference/quantized_element.hpp"
#include "kernels/reference/reference_ops.hpp"

namespace pagoda::kernels::reference {

// token_ids [num_tokens], table [vocab, hidden] -> out [num_tokens, hidden]
void embedding(const EmbeddingParams& p) {
  const std::int64_t hidden = p.hidden();
  const auto weight = [&](std::int64_t row, std::int64_t column) {
    if (p.quantized.data != nullptr) return static_cast<float>(load(p.quantized, row, column));
    return load(p.table.data, p.table.dtype, row * hidden + column);
  };
  for (std::int64_t t = 0; t < p.num_tokens; ++t) {
    const std::int64_t row = p.row_of(p.token_ids[t]);
    for (std::int64_t i = 0; i < hidden; ++i) {
      float& out = p.out[t * hidden + i];
      out = (p.accumulate ? out : 0.0F) + (row < 0 ? 0.0F : weight(row, i));
    }
  }
}

// x [num_rows, width], in place
void scale(const ScaleParams& p) {
  for (std::int64_t i = 0; i < p.num_rows * p.width; ++i) {
    const double scaled = double{p.factor} * p.x[i];
    p.x[i] = static_cast<float>(p.softcap > 0.0F ? p.softcap * std::tanh(scaled / p.softcap) : scaled);
  }
}

// x [*, width], rows [num_rows] -> out [num_rows, width]
void gather_rows(const GatherRowsParams& p) {
  for (std::int64_t i = 0; i < p.num_rows; ++i) {
    std::copy_n(p.x + p.rows[i] * p.width, p.width, p.out + i * p.width);
  }
}

// table [*], slots [count] -> out [count]
void gather_tokens(const GatherTokensParams& p) {
  for (std::int64_t i = 0; i < p.count; ++i) {
    const std::int32_t token = p.table[p.slots[i]];
    p.out[i] = token < p.vocab ? token : 0;
  }
}

// tokens [count, token_stride], slots [count] -> table [*]
void scatter_tokens(const ScatterTokensParams& p) {
  for (std::int64_t i = 0; i < p.count; ++i) {
    if (p.slots[i] >= 0) p.table[p.slots[i]] = std::max(0, p.tokens[i * p.token_stride]);
  }
}

namespace {

/// Scale of int8 values (see KvCacheView), and the factor that values are multiplied by before they are rounded.
struct Int8Scale {
  float scale = 1.0F;
  float inverse = 1.0F;
};

Int8Scale int8_scale(const float* x, std::int64_t count) {
  constexpr float kMaxInt8 = 127.0F;
  if (!std::all_of(x, x + count, [](float v) { return std::isfinite(v); })) {
    return {std::numeric_limits<float>::quiet_NaN(), 0.0F};
  }
  float highest = 0.0F;
  for (std::int64_t i = 0; i < count; ++i) highest = std::max(highest, std::abs(x[i]));
  if (highest < KvCacheView::kMinInt8Highest) return {0.0F, 0.0F};
  return {highest / kMaxInt8, kMaxInt8 / highest};
}

/// Returns x as a cache of this type holds it before it is rounded.
float in_range_of(DType dtype, float x) {
  return dtype == DType::f16 ? std::clamp(x, -KvCacheView::kMaxF16, KvCacheView::kMaxF16) : x;
}

// x [head_dim] -> to [kv_heads, block_size, head_dim] and scales [kv_heads, block_size] at (row = head * block_size +
// offset)
void store_head(const KvCacheView& cache, const float* x, std::byte* to, float* scales, std::int64_t row) {
  const bool scaled = cache.dtype == DType::int8;
  const Int8Scale scale = scaled ? int8_scale(x, cache.head_dim) : Int8Scale{};
  if (scaled) scales[row] = scale.scale;
  for (std::int64_t i = 0; i < cache.head_dim; ++i) {
    const float value = scaled && scale.inverse == 0.0F ? 0.0F : x[i] * scale.inverse;
    store(to, cache.dtype, row * cache.head_dim + i, in_range_of(cache.dtype, value));
  }
}

}  // namespace

// key, value [num_tokens, stride], slot_mapping [num_tokens] -> cache blocks [kv_heads, block_size, head_dim]
void store_kv(const StoreKvParams& p) {
  const KvCacheView& cache = p.cache;
  for (std::int64_t t = 0; t < p.num_tokens; ++t) {
    if (p.slot_mapping[t] < 0) continue;
    const std::int64_t block = p.slot_mapping[t] / cache.block_size;
    const std::int64_t offset = p.slot_mapping[t] % cache.block_size;
    for (std::int64_t h = 0; h < cache.num_kv_heads; ++h) {
      const std::int64_t row = h * cache.block_size + offset;
      const float* key = p.key + t * p.key_stride + h * cache.head_dim;
      const float* value = p.value + t * p.value_stride + h * cache.head_dim;
      store_head(cache, key, cache.key_block(block), cache.key_scales(block), row);
      store_head(cache, value, cache.value_block(block), cache.value_scales(block), row);
    }
  }
}

// block from[i] of from_base -> block to[i] of to_base, in order
void move_blocks(const MoveBlocksParams& p) {
  for (std::size_t i = 0; i < p.from.size(); ++i) {
    std::memmove(p.to_base + p.to[i] * p.block_bytes, p.from_base + p.from[i] * p.block_bytes,
                 static_cast<std::size_t>(p.block_bytes));
  }
}

}  // namespace pagoda::kernels::reference

#include <algorithm>
#include <cstring>

#include "kernels/reference/element.hpp"
#include "kernels/reference/reference_ops.hpp"

namespace pagoda::kernels::reference {

// token_ids [num_tokens], table [vocab, hidden] -> out [num_tokens, hidden]
void embedding(const EmbeddingParams& p) {
  const std::int64_t hidden = p.table.columns;
  for (std::int64_t t = 0; t < p.num_tokens; ++t) {
    for (std::int64_t i = 0; i < hidden; ++i) {
      float& out = p.out[t * hidden + i];
      out = (p.accumulate ? out : 0.0F) + load(p.table.data, p.table.dtype, p.token_ids[t] * hidden + i);
    }
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
  for (std::int64_t i = 0; i < p.count; ++i) p.out[i] = p.table[p.slots[i]];
}

// tokens [count, token_stride], slots [count] -> table [*]
void scatter_tokens(const ScatterTokensParams& p) {
  for (std::int64_t i = 0; i < p.count; ++i) {
    if (p.slots[i] >= 0) p.table[p.slots[i]] = std::max(0, p.tokens[i * p.token_stride]);
  }
}

// key, value [num_tokens, stride], slot_mapping [num_tokens] -> cache blocks [kv_heads, block_size, head_dim]
void store_kv(const StoreKvParams& p) {
  const KvCacheView& cache = p.cache;
  for (std::int64_t t = 0; t < p.num_tokens; ++t) {
    if (p.slot_mapping[t] < 0) continue;
    const std::int64_t block = p.slot_mapping[t] / cache.block_size;
    const std::int64_t offset = p.slot_mapping[t] % cache.block_size;
    for (std::int64_t h = 0; h < cache.num_kv_heads; ++h) {
      for (std::int64_t i = 0; i < cache.head_dim; ++i) {
        const std::int64_t from = h * cache.head_dim + i;
        const std::int64_t to = (h * cache.block_size + offset) * cache.head_dim + i;
        store(cache.key_block(block), cache.dtype, to, p.key[t * p.key_stride + from]);
        store(cache.value_block(block), cache.dtype, to, p.value[t * p.value_stride + from]);
      }
    }
  }
}

// block from[i] of from_base -> block to[i] of to_base, one after the other
void move_blocks(const MoveBlocksParams& p) {
  for (std::size_t i = 0; i < p.from.size(); ++i) {
    std::memmove(p.to_base + p.to[i] * p.block_bytes, p.from_base + p.from[i] * p.block_bytes,
                 static_cast<std::size_t>(p.block_bytes));
  }
}

}  // namespace pagoda::kernels::reference

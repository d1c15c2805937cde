#pragma once

/// Types that attention.cpp shares with VectorAttention and MatrixAttention.

#include <cstdint>

#include "kernels/cpu/attention_positions.hpp"
#include "kernels/cpu/attention_tasks.hpp"
#include "kernels/cpu/kernel_table.hpp"
#include "kernels/ops.hpp"

namespace pagoda::kernels {

/// The parameters of one call, and how the rows of a task follow from them: row r of a KV head is query position
/// r / heads_per_kv of the tile and query head r % heads_per_kv of the KV head.
struct AttentionCall {
  const CpuKernels& kernels;
  const PagedAttentionParams& params;

  std::int64_t heads_per_kv() const { return params.num_heads / params.cache.num_kv_heads; }
  /// Returns the number of rows of one KV head.
  std::int64_t rows_of(const QueryTile& tile) const { return tile.count * heads_per_kv(); }
  std::int64_t query_head(const QueryTile& tile, std::int64_t head, std::int64_t r) const {
    return (tile.first_kv_head + head) * heads_per_kv() + r % heads_per_kv();
  }
  const float* query_row(const QueryTile& tile, std::int64_t head, std::int64_t r) const {
    return params.query + (tile.first_row + r / heads_per_kv()) * params.query_stride +
           query_head(tile, head, r) * params.cache.head_dim;
  }
  const std::int32_t* table_of(const QueryTile& tile) const {
    return params.block_tables + tile.sequence * params.max_blocks;
  }
};

/// Softmax sums of some rows (AttentionSums, row by row).
struct RowSums {
  float* highest = nullptr;  ///< [rows]
  float* total = nullptr;    ///< [rows]
  float* sums = nullptr;     ///< [rows, width]
};

/// Work of one KV head on a tile of positions.
struct HeadTile {
  const QueryTile& query;
  std::int64_t head;  ///< index among the tile's KV heads
  const Positions& positions;
  const Positions& next;  ///< prefetched during the work on `positions`
};

}  // namespace pagoda::kernels

#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "kernels/ops.hpp"

namespace pagoda::kernels {

/// Positions of a sequence are taken in groups, counted from position 0. The groups' sums are merged in ascending
/// order.
constexpr std::int64_t kAttentionGroup = 512;

/// The queries of one task: `count` consecutive query positions of one sequence, the heads of some KV heads.
struct QueryTile {
  std::int64_t sequence = 0;
  std::int64_t first_kv_head = 0;
  std::int64_t num_kv_heads = 0;
  std::int64_t first_row = 0;       ///< row of the query matrix
  std::int64_t first_position = 0;  ///< of that row
  std::int64_t count = 0;
  std::int64_t first_seen = 0;  ///< the lowest position that any row sees

  std::int64_t end_seen() const { return first_position + count; }
  std::int64_t first_group() const { return first_seen / kAttentionGroup; }
  std::int64_t end_group() const { return (end_seen() + kAttentionGroup - 1) / kAttentionGroup; }
};

/// One group of a tile's positions, as a task of its own.
struct TileGroup {
  std::size_t tile = 0;
  std::int64_t group = 0;
};

/// One head of a tile whose groups are tasks of their own.
struct TileMerge {
  std::size_t tile = 0;
  std::int64_t head = 0;         ///< of the tile's KV heads
  std::int64_t first_group = 0;  ///< of the tile in AttentionTasks::groups
};

/// How attention is shared among threads. Either every tile is a task, or every group of a tile is, a tile's groups one
/// behind the other, and then every merge.
struct AttentionTasks {
  std::vector<QueryTile> tiles;
  std::vector<TileGroup> groups;  ///< empty: tiles are tasks
  std::vector<TileMerge> merges;
};

struct TileLimits {
  std::int64_t rows = 0;         ///< most rows (positions times the heads of a KV head) of a tile
  std::int64_t stream_rows = 0;  ///< tiles with so many rows at most read keys and values straight from memory
};

/// Tiles with few rows take all KV heads together, whose keys and values lie side by side, unless that leaves threads
/// without work. Then the groups of a tile are tasks, as when a long context is decoded, or single heads.
AttentionTasks attention_tasks(const PagedAttentionParams& params, const TileLimits& limits, std::int64_t num_threads);

}  // namespace pagoda::kernels

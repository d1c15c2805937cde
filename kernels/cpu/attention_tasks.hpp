#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "kernels/ops.hpp"

namespace pagoda::kernels {

/// Number of positions in a group. Attention splits the positions of a sequence into groups, counted from position 0,
/// and merges the groups' sums in ascending order.
constexpr std::int64_t kAttentionGroup = 512;

/// The queries of one task: `count` consecutive query positions of one sequence, with the query heads of num_kv_heads
/// KV heads.
struct QueryTile {
  std::int64_t sequence = 0;
  std::int64_t first_kv_head = 0;
  std::int64_t num_kv_heads = 0;
  std::int64_t first_row = 0;       ///< row of the query matrix
  std::int64_t first_position = 0;  ///< position of first_row
  std::int64_t count = 0;
  std::int64_t first_seen = 0;  ///< the lowest position that any row sees

  std::int64_t end_seen() const { return first_position + count; }
  std::int64_t first_group() const { return first_seen / kAttentionGroup; }
  std::int64_t end_group() const { return (end_seen() + kAttentionGroup - 1) / kAttentionGroup; }
};

/// One group of a tile's positions that is a separate task.
struct TileGroup {
  std::size_t tile = 0;
  std::int64_t group = 0;
};

/// Merge of the groups' sums of one KV head, for a tile whose groups are separate tasks.
struct TileMerge {
  std::size_t tile = 0;
  std::int64_t head = 0;         ///< index among the tile's KV heads
  std::int64_t first_group = 0;  ///< index of the tile's first group in AttentionTasks::groups
};

/// Division of attention among threads. Either every tile is a task. Or every group of every tile is a task, in which
/// case the groups of a tile are consecutive, and one task for every merge follows.
struct AttentionTasks {
  std::vector<QueryTile> tiles;
  std::vector<TileGroup> groups;  ///< empty = tiles are tasks
  std::vector<TileMerge> merges;
};

struct TileLimits {
  std::int64_t rows = 0;           ///< maximum rows of a tile (positions times query heads of a KV head)
  std::int64_t rows_together = 0;  ///< tiles with at most this number of rows of a KV head take all KV heads
};

/// Divides attention into tasks. Tiles with few rows take all KV heads together, whose keys and values are adjacent in
/// memory, unless that leaves threads without work. In that case the groups of a tile (as in the decode of a long
/// context) or single KV heads are tasks.
AttentionTasks attention_tasks(const PagedAttentionParams& params, const TileLimits& limits, std::int64_t num_threads);

}  // namespace pagoda::kernels

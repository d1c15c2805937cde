#include "kernels/cpu/attention_tasks.hpp"

#include <algorithm>

namespace pagoda::kernels {
namespace {

constexpr std::int64_t kTasksPerThread = 4;  ///< minimum; with fewer tasks, threads wait at the end for other threads

std::int64_t heads_per_kv(const PagedAttentionParams& p) {
  return p.num_heads / p.cache.num_kv_heads;
}

/// Returns the number of positions that a tile's rows see times the number of the rows, over all its KV heads.
std::int64_t work_of(const PagedAttentionParams& p, const QueryTile& tile) {
  return tile.num_kv_heads * tile.count * heads_per_kv(p) * (tile.end_seen() - tile.first_seen);
}

/// Returns the tiles in descending order of their work, so that no thread starts a large tile at the end.
std::vector<QueryTile> tiles_of(const PagedAttentionParams& p, const TileLimits& limits, bool heads_together) {
  std::vector<QueryTile> tiles;
  const std::int64_t positions_per_tile = limits.rows / heads_per_kv(p);
  for (std::int64_t s = 0; s < p.num_sequences; ++s) {
    const std::int64_t rows = p.query_start[s + 1] - p.query_start[s];
    const std::int64_t first_position = p.context_len[s] - rows;
    for (std::int64_t end = rows; end > 0; end -= positions_per_tile) {
      const std::int64_t first = std::max<std::int64_t>(0, end - positions_per_tile);
      const std::int64_t position = first_position + first;
      QueryTile tile{.sequence = s,
                     .first_kv_head = 0,
                     .num_kv_heads = p.cache.num_kv_heads,
                     .first_row = p.query_start[s] + first,
                     .first_position = position,
                     .count = end - first,
                     .first_seen = p.first_seen(position)};
      if (heads_together && tile.count * heads_per_kv(p) <= limits.rows_together) {
        tiles.push_back(tile);
        continue;
      }
      tile.num_kv_heads = 1;
      for (; tile.first_kv_head < p.cache.num_kv_heads; ++tile.first_kv_head) tiles.push_back(tile);
    }
  }
  std::ranges::stable_sort(tiles,
                           [&](const QueryTile& a, const QueryTile& b) { return work_of(p, a) > work_of(p, b); });
  return tiles;
}

void list_groups(AttentionTasks& tasks) {
  for (std::size_t tile = 0; tile < tasks.tiles.size(); ++tile) {
    const QueryTile& of = tasks.tiles[tile];
    const auto first = static_cast<std::int64_t>(tasks.groups.size());
    for (std::int64_t head = 0; head < of.num_kv_heads; ++head) tasks.merges.push_back({tile, head, first});
    for (std::int64_t group = of.first_group(); group < of.end_group(); ++group) tasks.groups.push_back({tile, group});
  }
}

}  // namespace

AttentionTasks attention_tasks(const PagedAttentionParams& params, const TileLimits& limits, std::int64_t num_threads) {
  const auto enough = [&](const auto& tasks) {
    return static_cast<std::int64_t>(tasks.size()) >= kTasksPerThread * num_threads;
  };
  AttentionTasks tasks{.tiles = tiles_of(params, limits, true), .groups = {}, .merges = {}};
  if (tasks.tiles.empty()) return tasks;
  std::int64_t work = 0;
  for (const QueryTile& tile : tasks.tiles) work += work_of(params, tile);
  // The work is even if the largest tile, which is the first, is at most one thread's share of the work.
  const bool even = work_of(params, tasks.tiles.front()) * num_threads <= work;
  if (enough(tasks.tiles) && even) return tasks;
  list_groups(tasks);
  if (enough(tasks.groups)) return tasks;

  AttentionTasks by_head{.tiles = tiles_of(params, limits, false), .groups = {}, .merges = {}};
  if (!enough(by_head.tiles)) list_groups(by_head);
  return by_head;
}

}  // namespace pagoda::kernels

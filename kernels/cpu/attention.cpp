#include "kernels/cpu/attention.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <utility>
#include <vector>

#include "kernels/cpu/attention_call.hpp"
#include "kernels/cpu/attention_positions.hpp"
#include "kernels/cpu/attention_tasks.hpp"
#include "kernels/cpu/matrix_attention.hpp"
#include "kernels/cpu/row_tiles.hpp"
#include "kernels/cpu/vector_attention.hpp"

namespace pagoda::kernels {
namespace {

constexpr float kNothingSeen = -std::numeric_limits<float>::infinity();

/// Positions are split into tiles, counted from position 0. Within a group (kAttentionGroup) the softmax of a row
/// proceeds tile by tile. Tiles and groups do not depend on chunks, block size or batch, so a row's result has the same
/// bits whether it is computed in a prefill, a chunk or a decode, by one thread or by several that divide its groups.
///
/// `Way` computes the tiles: VectorAttention or MatrixAttention.
template <class Way>
class PagedAttention {
 public:
  PagedAttention(const CpuKernels& kernels, ThreadPool& threads, const PagedAttentionParams& p)
      : call_{kernels, p},
        threads_(threads),
        max_rows_(std::max<std::int64_t>(1, Way::kMaxTaskRows / call_.heads_per_kv()) * call_.heads_per_kv()),
        way_(call_, max_rows_) {}
  PagedAttention(const PagedAttention&) = delete;
  PagedAttention& operator=(const PagedAttention&) = delete;

  Status run(ScratchPool& pool) {
    const AttentionTasks tasks =
        attention_tasks(call_.params, {max_rows_, way_.rows_together()}, threads_.num_threads());
    for (const QueryTile& tile : tasks.tiles) {
      tile_rows_ = std::max(tile_rows_, tile.num_kv_heads * call_.rows_of(tile));
    }
    const auto num_groups = static_cast<std::int64_t>(tasks.groups.size());
    const std::int64_t shared_floats = num_groups * sums_floats();
    const std::int64_t thread_floats = way_.workspace_floats(tile_rows_) + 2 * sums_floats();
    auto scratch = pool.borrow(shared_floats + threads_.num_threads() * thread_floats,
                               1 + (Way::kWorkspaceParts + 2) * threads_.num_threads());
    if (!scratch) return fail(std::move(scratch.error()));
    float* const shared = scratch->floats(shared_floats);
    const auto sums_of_group = [&](std::int64_t i) { return sums_at(shared + i * sums_floats()); };
    std::vector<Workspace> workspaces;
    for (int thread = 0; thread < threads_.num_threads(); ++thread) {
      workspaces.push_back(
          {way_.make_workspace(*scratch, tile_rows_), scratch->floats(sums_floats()), scratch->floats(sums_floats())});
    }

    if (num_groups == 0) {
      threads_.parallel_for(static_cast<std::int64_t>(tasks.tiles.size()), [&](std::int64_t task, int thread) {
        attend_all_groups(tasks.tiles[static_cast<std::size_t>(task)], workspaces[static_cast<std::size_t>(thread)]);
      });
      return {};
    }
    // A task takes some consecutive groups; each group prefetches the start of the next group.
    constexpr std::int64_t kTasksPerThread = 8;
    const std::int64_t per_task = std::max<std::int64_t>(1, num_groups / (kTasksPerThread * threads_.num_threads()));
    threads_.parallel_for(ceil_div(num_groups, per_task), [&](std::int64_t task, int thread) {
      const Workspace& work = workspaces[static_cast<std::size_t>(thread)];
      for (std::int64_t i = task * per_task; i < std::min(num_groups, (task + 1) * per_task); ++i) {
        const TileGroup& group = tasks.groups[static_cast<std::size_t>(i)];
        const QueryTile& tile = tasks.tiles[group.tile];
        way_.pack_queries(tile, work.of_way, work.group_sums);
        attend_group(tile, group.group, work, sums_of_group(i));
      }
    });
    threads_.parallel_for(static_cast<std::int64_t>(tasks.merges.size()), [&](std::int64_t task) {
      const TileMerge& merge = tasks.merges[static_cast<std::size_t>(task)];
      const QueryTile& tile = tasks.tiles[merge.tile];
      const RowSums total = of_head(tile, merge.head, sums_of_group(merge.first_group));
      for (std::int64_t i = 1; i < tile.end_group() - tile.first_group(); ++i) {
        add_sums(call_.rows_of(tile), total, of_head(tile, merge.head, sums_of_group(merge.first_group + i)));
      }
      write_out(tile, merge.head, total);
    });
    return {};
  }

 private:
  struct Workspace {
    typename Way::Workspace of_way;
    float* group_sums = nullptr;  ///< also room for the queries of one KV head
    float* total_sums = nullptr;
  };

  std::int64_t width() const { return way_.width(); }
  std::int64_t padded_rows() const { return round_up(tile_rows_, kMaxLanes); }
  std::int64_t sums_floats() const { return padded_rows() * (width() + 2); }
  RowSums sums_at(float* p) const { return {p, p + padded_rows(), p + 2 * padded_rows()}; }

  RowSums of_head(const QueryTile& tile, std::int64_t head, const RowSums& sums) const {
    const std::int64_t row = head * call_.rows_of(tile);
    return {sums.highest + row, sums.total + row, sums.sums + row * width()};
  }

  void attend_all_groups(const QueryTile& tile, const Workspace& work) const {
    way_.pack_queries(tile, work.of_way, work.group_sums);
    const RowSums total = sums_at(work.total_sums);
    attend_group(tile, tile.first_group(), work, total);
    for (std::int64_t group = tile.first_group() + 1; group < tile.end_group(); ++group) {
      const RowSums sums = sums_at(work.group_sums);
      attend_group(tile, group, work, sums);
      add_sums(tile.num_kv_heads * call_.rows_of(tile), total, sums);
    }
    for (std::int64_t head = 0; head < tile.num_kv_heads; ++head) write_out(tile, head, of_head(tile, head, total));
  }

  void attend_group(const QueryTile& query, std::int64_t group, const Workspace& work, const RowSums& sums) const {
    const std::int64_t rows = query.num_kv_heads * call_.rows_of(query);
    std::fill_n(sums.highest, rows, kNothingSeen);
    std::fill_n(sums.total, rows, 0.0F);
    std::fill_n(sums.sums, rows * width(), 0.0F);
    std::int64_t start = std::max(query.first_seen, group * kAttentionGroup) / way_.tile() * way_.tile();
    const std::int64_t end = std::min(query.end_seen(), (group + 1) * kAttentionGroup);
    std::array<Positions, 2> positions;
    std::size_t now = 0;
    positions[now] = positions_of(query, start, 0);
    for (std::int64_t head = 0; start < end;) {
      const std::int64_t next_head = head + 1 < query.num_kv_heads ? head + 1 : 0;
      const std::int64_t next_start = next_head == 0 ? start + way_.tile() : start;
      // At the end of a group, the next tile is the first of the next group.
      const bool ends = next_start >= query.end_seen();
      if (!ends) positions[1 - now] = positions_of(query, next_start, next_head);
      way_.attend_tile({query, head, positions[now], positions[ends ? now : 1 - now]}, work.of_way,
                       of_head(query, head, sums));
      now = 1 - now;
      head = next_head;
      start = next_start;
    }
  }

  Positions positions_of(const QueryTile& query, std::int64_t start, std::int64_t head) const {
    return positions_at(call_.params.cache, call_.table_of(query),
                        {query.first_kv_head + head, start, way_.tile(), query.first_seen, query.end_seen()});
  }

  void add_sums(std::int64_t rows, const RowSums& into, const RowSums& later) const {
    for (std::int64_t r = 0; r < rows; ++r) {
      call_.kernels.merge_sums({into.highest + r, into.total + r, into.sums + r * width()},
                               {later.highest + r, later.total + r, later.sums + r * width()}, width());
    }
  }

  void write_out(const QueryTile& tile, std::int64_t head, const RowSums& sums) const {
    const PagedAttentionParams& p = call_.params;
    for (std::int64_t r = 0; r < call_.rows_of(tile); ++r) {
      const std::int64_t row = tile.first_row + r / call_.heads_per_kv();
      float* out = p.out + (row * p.num_heads + call_.query_head(tile, head, r)) * p.cache.head_dim;
      call_.kernels.scale(sums.sums + r * width(), way_.unit() / sums.total[r], p.cache.head_dim, out);
    }
  }

  const AttentionCall call_;
  ThreadPool& threads_;
  std::int64_t max_rows_;  ///< maximum rows of one KV head in a tile
  Way way_;
  std::int64_t tile_rows_ = 0;  ///< maximum rows of a tile, over all its KV heads
};

}  // namespace

Status cpu_paged_attention(const CpuKernels& kernels, ThreadPool& threads, ScratchPool& scratch,
                           const PagedAttentionParams& params) {
  if (MatrixAttention::computes(kernels, params)) {
    return PagedAttention<MatrixAttention>(kernels, threads, params).run(scratch);
  }
  return PagedAttention<VectorAttention>(kernels, threads, params).run(scratch);
}

}  // namespace pagoda::kernels

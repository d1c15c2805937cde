#include "kernels/cpu/attention.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <utility>
#include <vector>

#include "kernels/cpu/attention_positions.hpp"
#include "kernels/cpu/attention_tasks.hpp"
#include "kernels/cpu/linear.hpp"
#include "kernels/cpu/row_tiles.hpp"

namespace pagoda::kernels {
namespace {

/// Positions are split into tiles of `score_tile`, counted from position 0. Within a group (kAttentionGroup) the
/// softmax of a row proceeds tile by tile. Tiles and groups do not depend on chunks, block size or batch, so a row's
/// result has the same bits whether it is computed in a prefill, a chunk or a decode, by one thread or by several that
/// divide its groups.

/// Maximum query rows of one KV head in a task: all query heads of the KV head, for as many positions as fit. Each key
/// and value is widened once for all these rows.
constexpr std::int64_t kMaxTaskRows = 56;

/// Upper bound of the sums of a register tile of scores over all instruction sets.
constexpr std::int64_t kMaxTileSums = 128;

constexpr float kNothingSeen = -std::numeric_limits<float>::infinity();

std::int64_t round_up(std::int64_t a, std::int64_t b) {
  return (a + b - 1) / b * b;
}

class PagedAttention {
 public:
  PagedAttention(const CpuKernels& kernels, ThreadPool& threads, const PagedAttentionParams& p)
      : kernels_(kernels),
        threads_(threads),
        p_(p),
        cache_(p.cache),
        heads_per_kv_(p.num_heads / p.cache.num_kv_heads),
        padded_dim_(round_up(p.cache.head_dim, kLinearPadding)),
        width_(round_up(p.cache.head_dim, kernels.panel)),
        max_rows_(std::max(heads_per_kv_, kMaxTaskRows / heads_per_kv_ * heads_per_kv_)) {}

  Status run(ScratchPool& pool) {
    const AttentionTasks tasks = attention_tasks(p_, {max_rows_, kernels_.stream_rows}, threads_.num_threads());
    for (const QueryTile& tile : tasks.tiles) tile_rows_ = std::max(tile_rows_, tile.num_kv_heads * rows_of(tile));
    const auto num_groups = static_cast<std::int64_t>(tasks.groups.size());
    const std::int64_t shared_floats = num_groups * sums_floats();
    auto scratch = pool.borrow(shared_floats + threads_.num_threads() * workspace_floats(),
                               1 + kWorkspaceParts * threads_.num_threads());
    if (!scratch) return fail(std::move(scratch.error()));
    float* const shared = scratch->floats(shared_floats);
    const auto sums_of_group = [&](std::int64_t i) { return sums_at(shared + i * sums_floats()); };
    std::vector<Workspace> workspaces;
    for (int thread = 0; thread < threads_.num_threads(); ++thread) workspaces.push_back(make_workspace(*scratch));

    if (num_groups == 0) {
      threads_.parallel_for(static_cast<std::int64_t>(tasks.tiles.size()), [&](std::int64_t task, int thread) {
        attend_all_groups(tasks.tiles[static_cast<std::size_t>(task)], workspaces[static_cast<std::size_t>(thread)]);
      });
      return {};
    }
    // A task takes some consecutive groups; each group prefetches the start of the next group.
    constexpr std::int64_t kTasksPerThread = 8;
    const std::int64_t per_task = std::max<std::int64_t>(1, num_groups / (kTasksPerThread * threads_.num_threads()));
    threads_.parallel_for((num_groups + per_task - 1) / per_task, [&](std::int64_t task, int thread) {
      const Workspace& work = workspaces[static_cast<std::size_t>(thread)];
      for (std::int64_t i = task * per_task; i < std::min(num_groups, (task + 1) * per_task); ++i) {
        const TileGroup& group = tasks.groups[static_cast<std::size_t>(i)];
        const QueryTile& tile = tasks.tiles[group.tile];
        pack_queries(tile, work);
        attend_group(tile, group.group, work, sums_of_group(i));
      }
    });
    threads_.parallel_for(static_cast<std::int64_t>(tasks.merges.size()), [&](std::int64_t task) {
      const TileMerge& merge = tasks.merges[static_cast<std::size_t>(task)];
      const QueryTile& tile = tasks.tiles[merge.tile];
      const Sums total = of_head(tile, merge.head, sums_of_group(merge.first_group));
      for (std::int64_t i = 1; i < tile.end_group() - tile.first_group(); ++i) {
        add_sums(rows_of(tile), total, of_head(tile, merge.head, sums_of_group(merge.first_group + i)));
      }
      write_out(tile, merge.head, total);
    });
    return {};
  }

 private:
  /// Softmax sums of all rows of a tile (AttentionSums, row by row).
  struct Sums {
    float* highest = nullptr;  ///< [tile rows]
    float* total = nullptr;    ///< [tile rows]
    float* sums = nullptr;     ///< [tile rows, width]
  };

  /// Work of one KV head on a tile of positions.
  struct HeadTile {
    const QueryTile& query;
    std::int64_t head;  ///< index among the tile's KV heads
    const Positions& positions;
    const Positions& next;  ///< prefetched during the work on `positions`
  };

  struct Workspace {
    float* queries = nullptr;        ///< per KV head, register tile t at first_row(t) * padded_dim: [steps, rows, 4]
    float* keys = nullptr;           ///< [steps, 4 * linear_panel]
    float* values = nullptr;         ///< [score_tile, width], or pairs of values
    float* scores = nullptr;         ///< [max_rows, score_tile], of one KV head
    float* probabilities = nullptr;  ///< [score_tile, lanes], or pairs of them
    float* slopes = nullptr;         ///< [tile rows]
    float* group_sums = nullptr;
    float* total_sums = nullptr;
  };
  static constexpr int kWorkspaceParts = 8;

  std::int64_t tile() const { return kernels_.score_tile; }
  std::int64_t lanes() const { return kernels_.lanes; }
  std::int64_t padded_rows() const { return round_up(tile_rows_, kMaxLanes); }
  std::int64_t sums_floats() const { return padded_rows() * (width_ + 2); }
  Sums sums_at(float* p) const { return {p, p + padded_rows(), p + 2 * padded_rows()}; }

  Sums of_head(const QueryTile& tile, std::int64_t head, const Sums& sums) const {
    const std::int64_t row = head * rows_of(tile);
    return {sums.highest + row, sums.total + row, sums.sums + row * width_};
  }

  std::int64_t workspace_floats() const {
    return tile_rows_ * padded_dim_ + padded_dim_ * kernels_.linear_panel + tile() * width_ + max_rows_ * tile() +
           tile() * lanes() + tile_rows_ + 2 * sums_floats();
  }

  Workspace make_workspace(ScratchPool::Lease& scratch) const {
    Workspace work;
    work.queries = scratch.floats(tile_rows_ * padded_dim_);
    work.keys = scratch.floats(padded_dim_ * kernels_.linear_panel);
    work.values = scratch.floats(tile() * width_);
    std::fill_n(work.values, tile() * width_, 0.0F);  // columns from head_dim on are never written
    work.scores = scratch.floats(max_rows_ * tile());
    work.probabilities = scratch.floats(tile() * lanes());
    work.slopes = scratch.floats(tile_rows_);
    work.group_sums = scratch.floats(sums_floats());
    work.total_sums = scratch.floats(sums_floats());
    return work;
  }

  void attend_all_groups(const QueryTile& tile, const Workspace& work) const {
    pack_queries(tile, work);
    const Sums total = sums_at(work.total_sums);
    attend_group(tile, tile.first_group(), work, total);
    for (std::int64_t group = tile.first_group() + 1; group < tile.end_group(); ++group) {
      const Sums sums = sums_at(work.group_sums);
      attend_group(tile, group, work, sums);
      add_sums(tile.num_kv_heads * rows_of(tile), total, sums);
    }
    for (std::int64_t head = 0; head < tile.num_kv_heads; ++head) write_out(tile, head, of_head(tile, head, total));
  }

  /// Returns the number of rows of one KV head.
  std::int64_t rows_of(const QueryTile& tile) const { return tile.count * heads_per_kv_; }

  /// Row r of a head is position r / heads_per_kv, query head r % heads_per_kv.
  std::int64_t query_head(const QueryTile& tile, std::int64_t head, std::int64_t r) const {
    return (tile.first_kv_head + head) * heads_per_kv_ + r % heads_per_kv_;
  }
  const float* query_row(const QueryTile& tile, std::int64_t head, std::int64_t r) const {
    return p_.query + (tile.first_row + r / heads_per_kv_) * p_.query_stride +
           query_head(tile, head, r) * cache_.head_dim;
  }

  /// Returns whether keys and values are read as they are stored (few rows); with more rows they are widened once for
  /// all rows.
  bool streams(const QueryTile& query) const { return rows_of(query) <= kernels_.stream_rows; }

  RowTiles score_tiles(const QueryTile& query) const {
    return {rows_of(query), streams(query) ? kernels_.stream_rows : kernels_.linear_rows};
  }

  void pack_queries(const QueryTile& query, const Workspace& work) const {
    for (std::int64_t head = 0; head < query.num_kv_heads; ++head) pack_queries_of_head(query, head, work);
  }

  void pack_queries_of_head(const QueryTile& query, std::int64_t head, const Workspace& work) const {
    // Rows of one position are adjacent, but rows of different positions are not, so all rows are gathered first.
    const std::int64_t dim = cache_.head_dim;
    const std::int64_t first_row = head * rows_of(query);
    float* gathered = work.group_sums;  // not in use yet
    for (std::int64_t r = 0; r < rows_of(query); ++r) std::copy_n(query_row(query, head, r), dim, gathered + r * dim);
    const RowTiles tiles = score_tiles(query);
    for (std::int64_t t = 0; t < tiles.count(); ++t) {
      kernels_.pack_rows({.x = gathered + tiles.first_row(t) * dim,
                          .rows = tiles.rows(t),
                          .k = dim,
                          .x_pitch = dim,
                          .paired = cache_.dtype == DType::bf16,
                          .dst = work.queries + (first_row + tiles.first_row(t)) * padded_dim_});
    }
    if (p_.alibi_slopes == nullptr) return;
    for (std::int64_t r = 0; r < rows_of(query); ++r) {
      work.slopes[first_row + r] = p_.alibi_slopes[query_head(query, head, r)];
    }
  }

  void attend_group(const QueryTile& query, std::int64_t group, const Workspace& work, const Sums& sums) const {
    const std::int64_t rows = query.num_kv_heads * rows_of(query);
    std::fill_n(sums.highest, rows, kNothingSeen);
    std::fill_n(sums.total, rows, 0.0F);
    std::fill_n(sums.sums, rows * width_, 0.0F);
    std::int64_t start = std::max(query.first_seen, group * kAttentionGroup) / tile() * tile();
    const std::int64_t end = std::min(query.end_seen(), (group + 1) * kAttentionGroup);
    std::array<Positions, 2> positions;
    std::size_t now = 0;
    positions[now] = positions_of(query, start, 0);
    for (std::int64_t head = 0; start < end;) {
      const std::int64_t next_head = head + 1 < query.num_kv_heads ? head + 1 : 0;
      const std::int64_t next_start = next_head == 0 ? start + tile() : start;
      // At the end of a group, the next tile is the first of the next group.
      const bool ends = next_start >= query.end_seen();
      if (!ends) positions[1 - now] = positions_of(query, next_start, next_head);
      attend_tile({query, head, positions[now], positions[ends ? now : 1 - now]}, work, of_head(query, head, sums));
      now = 1 - now;
      head = next_head;
      start = next_start;
    }
  }

  Positions positions_of(const QueryTile& query, std::int64_t start, std::int64_t head) const {
    return positions_at(cache_, table_of(query),
                        {query.first_kv_head + head, start, tile(), query.first_seen, query.end_seen()});
  }

  /// Returns the next keys and values that a step of the work on a tile prefetches: the share from `from` to `to`, in
  /// units of 1/128. The share is about the step's share of the time, measured with 8 heads on a Zen 4.
  NextRows next_rows(const HeadTile& part, std::int64_t from, std::int64_t to) const {
    constexpr std::int64_t kWhole = 128;
    const std::int64_t first = 2 * tile() * from / kWhole;
    return {part.next.rows.data() + first, 2 * tile() * to / kWhole - first,
            cache_.head_dim * static_cast<std::int64_t>(size_of(cache_.dtype))};
  }
  NextRows next_of_scores(const HeadTile& part) const { return next_rows(part, 0, 56); }
  NextRows next_of_softmax(const HeadTile& part) const { return next_rows(part, 56, 74); }
  NextRows next_of_values(const HeadTile& part) const { return next_rows(part, 74, 128); }

  const std::int32_t* table_of(const QueryTile& query) const {
    return p_.block_tables + query.sequence * p_.max_blocks;
  }

  void attend_tile(const HeadTile& part, const Workspace& work, const Sums& sums) const {
    if (streams(part.query)) {
      score_from_memory(part, work);
      softmax(part, work, sums);
      add_values_from_memory(part, work, sums);
    } else {
      score_packed(part, work);
      softmax(part, work, sums);
      add_widened_values(part, work, sums);
    }
  }

  /// Returns the unit of widened keys and values.
  float unit() const { return cache_.dtype == DType::fp8_e4m3 ? kFp8Unit : 1.0F; }
  bool scaled() const { return cache_.dtype == DType::int8; }
  /// Returns whether values are multiplied as pairs of bfloat16. Positions are then processed in pairs that begin at an
  /// even index in the tile.
  bool paired() const { return cache_.dtype == DType::bf16 && kernels_.bf16_quad > 4; }
  /// Returns the range of indices in the tile that the sums of values cover; unseen positions in it have probability 0.
  std::pair<std::int64_t, std::int64_t> value_range(const Positions& positions) const {
    const std::int64_t at_once = paired() ? 2 : 1;
    return {(positions.first - positions.start) / at_once * at_once,
            round_up(positions.end - positions.start, at_once)};
  }

  /// Returns the keys at tile indices [at, at + one panel).
  WeightPiece keys_at(const Positions& positions, std::int64_t at, std::int64_t rows) const {
    return {.w = nullptr,
            .dtype = cache_.dtype,
            .rows = rows,
            .row_bytes = 0,
            .first = 0,
            .count = cache_.head_dim,
            .row_pointers = positions.keys() + at};
  }

  static bool is_seen(const Positions& positions, std::int64_t at, std::int64_t count) {
    return positions.start + at < positions.end && positions.start + at + count > positions.first;
  }

  void score_from_memory(const HeadTile& part, const Workspace& work) const {
    const Positions& positions = part.positions;
    kernels_.scores_stream({.queries = work.queries + part.head * rows_of(part.query) * padded_dim_,
                            .rows = rows_of(part.query),
                            .keys = positions.keys(),
                            .dtype = cache_.dtype,
                            .head_dim = cache_.head_dim,
                            .first = positions.first - positions.start,
                            .end = positions.end - positions.start,
                            .scores = work.scores,
                            .next = next_of_scores(part)});
  }

  void score_packed(const HeadTile& part, const Workspace& work) const {
    const RowTiles tiles = score_tiles(part.query);
    const std::int64_t keys = kernels_.linear_panel;
    for (std::int64_t at = 0; at < tile(); at += keys) {
      if (!is_seen(part.positions, at, keys)) continue;
      for (std::int64_t k = 0; k < cache_.head_dim; k += kLinearBlock) {
        WeightPiece block = keys_at(part.positions, at, keys);
        block.first = k;
        block.count = std::min(kLinearBlock, cache_.head_dim - k);
        kernels_.pack_weights(block, work.keys + 4 * steps_of(kernels_, cache_.dtype, k) * keys);
      }
      for (std::int64_t t = 0; t < tiles.count(); ++t) score_tile(work, tiles, t, at);
    }
  }

  /// Multiplies one register tile of queries by a panel of packed keys.
  void score_tile(const Workspace& work, const RowTiles& tiles, std::int64_t t, std::int64_t at) const {
    const std::int64_t keys = kernels_.linear_panel;
    std::array<float, kMaxTileSums> sums;
    for (std::int64_t k = 0; k < padded_dim_; k += kLinearBlock) {
      kernels_.linear_tile(
          {.x = work.queries + tiles.first_row(t) * padded_dim_ +
                4 * steps_of(kernels_, cache_.dtype, k) * tiles.rows(t),
           .w = work.keys + 4 * steps_of(kernels_, cache_.dtype, k) * keys,
           .dtype = cache_.dtype,
           .rows = tiles.rows(t),
           .steps = steps_of(kernels_, cache_.dtype, std::min(kLinearBlock, padded_dim_ - k)),
           .sums = {
               .sums = sums.data(),
               .starts_at_zero = k == 0,
               .last = k + kLinearBlock >= padded_dim_,
               .out = {.out = work.scores + tiles.first_row(t) * tile() + at, .stride = tile(), .columns = keys}}});
    }
  }

  void softmax(const HeadTile& part, const Workspace& work, const Sums& sums) const {
    const QueryTile& query = part.query;
    Scales scales;
    if (scaled()) scales = scales_at(cache_, table_of(query), query.first_kv_head + part.head, part.positions);
    for (std::int64_t i = 0; i < query.count; ++i) {
      const std::int64_t row = i * heads_per_kv_;
      const float* slopes = work.slopes + part.head * rows_of(query) + row;
      kernels_.softmax_tile({.scores = work.scores + row * tile(),
                             .rows = heads_per_kv_,
                             .first_position = part.positions.start,
                             .position = query.first_position + i,
                             .first_seen = p_.first_seen(query.first_position + i),
                             .scale = p_.scale * unit(),
                             .softcap = p_.softcap,
                             .slopes = p_.alibi_slopes == nullptr ? nullptr : slopes,
                             .key_scales = scaled() ? scales.keys.data() : nullptr,
                             .value_scales = scaled() ? scales.values.data() : nullptr,
                             .highest = sums.highest + row,
                             .total = sums.total + row,
                             .sums = sums.sums + row * width_,
                             .width = width_,
                             .next = i == 0 && streams(query) ? next_of_softmax(part) : NextRows{}});
    }
  }

  /// sums[row, :] += sum over the seen positions of probability[row, position] * value[position, :].
  void add_values_from_memory(const HeadTile& part, const Workspace& work, const Sums& sums) const {
    if (cache_.head_dim % lanes() != 0) return add_widened_values(part, work, sums);
    const auto [first, end] = value_range(part.positions);
    kernels_.values_stream({.values = part.positions.values() + first,
                            .dtype = cache_.dtype,
                            .count = end - first,
                            .p = work.scores + first,
                            .p_pitch = tile(),
                            .rows = rows_of(part.query),
                            .sums = sums.sums,
                            .width = width_,
                            .columns = cache_.head_dim,
                            .next = next_of_values(part)});
  }

  void add_widened_values(const HeadTile& part, const Workspace& work, const Sums& sums) const {
    const auto [first, end] = value_range(part.positions);
    const std::int64_t at_once = paired() ? 2 : 1;
    for (std::int64_t i = first; i < end; i += at_once) {
      const void* const* values = part.positions.values() + i;
      float* widened = work.values + i / at_once * width_;
      if (paired()) {
        kernels_.pair_bf16(values[0], values[1], cache_.head_dim, widened);
      } else {
        kernels_.widen(values[0], cache_.dtype, cache_.head_dim, widened);
      }
    }
    const RowTiles tiles(rows_of(part.query), kernels_.max_rows);
    for (std::int64_t t = 0; t < tiles.count(); ++t) {
      pack_probabilities(tiles.first_row(t), tiles.rows(t), work);
      for (std::int64_t column = 0; column < width_; column += kernels_.panel) {
        kernels_.gemm_tile({.x = work.probabilities + first / at_once * lanes(),
                            .x_pitch = lanes(),
                            .paired = paired(),
                            .w = work.values + first / at_once * width_ + column,
                            .w_pitch = width_,
                            .c = sums.sums + tiles.first_row(t) * width_ + column,
                            .c_pitch = width_,
                            .rows = tiles.rows(t),
                            .k = (end - first) / at_once,
                            .starts_at_zero = false});
      }
    }
  }

  /// probabilities[i, r] = scores[first_row + r, i], or bfloat16 pairs of them if paired().
  void pack_probabilities(std::int64_t first_row, std::int64_t rows, const Workspace& work) const {
    std::array<const float*, kMaxLanes> score_rows;
    for (std::int64_t r = 0; r < lanes(); ++r) {
      score_rows[static_cast<std::size_t>(r)] = work.scores + (first_row + std::min(r, rows - 1)) * tile();
    }
    kernels_.pack({.rows = score_rows.data(), .count = tile(), .paired = paired(), .dst = work.probabilities});
  }

  void add_sums(std::int64_t rows, const Sums& into, const Sums& later) const {
    for (std::int64_t r = 0; r < rows; ++r) {
      kernels_.merge_sums({into.highest + r, into.total + r, into.sums + r * width_},
                          {later.highest + r, later.total + r, later.sums + r * width_}, width_);
    }
  }

  void write_out(const QueryTile& tile, std::int64_t head, const Sums& sums) const {
    for (std::int64_t r = 0; r < rows_of(tile); ++r) {
      const std::int64_t row = tile.first_row + r / heads_per_kv_;
      float* out = p_.out + (row * p_.num_heads + query_head(tile, head, r)) * cache_.head_dim;
      kernels_.scale(sums.sums + r * width_, unit() / sums.total[r], cache_.head_dim, out);
    }
  }

  const CpuKernels& kernels_;
  ThreadPool& threads_;
  const PagedAttentionParams& p_;
  const KvCacheView& cache_;
  std::int64_t heads_per_kv_;
  std::int64_t padded_dim_;
  std::int64_t width_;          ///< head_dim, rounded up to whole panels
  std::int64_t max_rows_;       ///< maximum rows of one KV head in a tile
  std::int64_t tile_rows_ = 0;  ///< maximum rows of a tile, over all its KV heads
};

}  // namespace

Status cpu_paged_attention(const CpuKernels& kernels, ThreadPool& threads, ScratchPool& scratch,
                           const PagedAttentionParams& params) {
  return PagedAttention(kernels, threads, params).run(scratch);
}

}  // namespace pagoda::kernels

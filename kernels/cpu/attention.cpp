#include "kernels/cpu/attention.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <utility>
#include <vector>

#include "kernels/cpu/row_tiles.hpp"

namespace pagoda::kernels {
namespace {

/// Positions are taken in tiles of one panel and in groups of kGroup, both counted from position 0. Within a group a
/// row's softmax goes tile by tile; the groups' sums are then merged in ascending order. Since tiles and groups do not
/// depend on chunks, block size or batch, a row's result has the same bits whether it is computed in a prefill, a chunk
/// or a decode, and by one thread or by several that share its groups.
constexpr std::int64_t kGroup = 512;

/// Query rows that one task takes: all heads that share a KV head, for as many positions as fit. Each key and value is
/// then widened once for all of them.
constexpr std::int64_t kMostTaskRows = 56;

constexpr float kNothingSeen = -std::numeric_limits<float>::infinity();

std::int64_t round_up(std::int64_t a, std::int64_t b) {
  return (a + b - 1) / b * b;
}

/// The queries of one task: `count` consecutive query positions of one sequence, the heads of one KV head.
struct QueryTile {
  std::int64_t sequence = 0;
  std::int64_t kv_head = 0;
  std::int64_t first_row = 0;       ///< row of the query matrix
  std::int64_t first_position = 0;  ///< of that row
  std::int64_t count = 0;
  std::int64_t first_seen = 0;  ///< the lowest position that any row sees

  std::int64_t end_seen() const { return first_position + count; }
  std::int64_t first_group() const { return first_seen / kGroup; }
  std::int64_t end_group() const { return (end_seen() + kGroup - 1) / kGroup; }
};

class PagedAttention {
 public:
  PagedAttention(const CpuKernels& kernels, ThreadPool& threads, const PagedAttentionParams& p)
      : kernels_(kernels),
        threads_(threads),
        p_(p),
        cache_(p.cache),
        heads_per_kv_(p.num_heads / p.cache.num_kv_heads),
        width_(round_up(p.cache.head_dim, kernels.panel)),
        max_rows_(std::max(heads_per_kv_, kMostTaskRows / heads_per_kv_ * heads_per_kv_)) {
    list_tiles();
  }

  Status run(ScratchPool& pool) {
    // With few tiles (decode of a long context) the groups of a tile are tasks of their own.
    constexpr std::size_t kTilesPerThread = 4;
    const bool split = tiles_.size() < kTilesPerThread * static_cast<std::size_t>(threads_.num_threads());
    const std::int64_t shared_floats = split ? list_partials() * sums_floats() : 0;
    auto scratch = pool.borrow(shared_floats + threads_.num_threads() * workspace_floats(),
                               1 + kWorkspaceParts * threads_.num_threads());
    if (!scratch) return fail(std::move(scratch.error()));
    partials_ = split ? scratch->floats(shared_floats) : nullptr;
    std::vector<Workspace> workspaces;
    for (int thread = 0; thread < threads_.num_threads(); ++thread) workspaces.push_back(make_workspace(*scratch));

    if (!split) {
      threads_.parallel_for(static_cast<std::int64_t>(tiles_.size()), [&](std::int64_t task, int thread) {
        attend_all_groups(tiles_[static_cast<std::size_t>(task)], workspaces[static_cast<std::size_t>(thread)]);
      });
      return {};
    }
    threads_.parallel_for(static_cast<std::int64_t>(partial_tasks_.size()), [&](std::int64_t task, int thread) {
      const Partial& partial = partial_tasks_[static_cast<std::size_t>(task)];
      const Workspace& work = workspaces[static_cast<std::size_t>(thread)];
      const QueryTile& tile = tiles_[partial.tile];
      pack_queries(tile, work);
      attend_group(tile, partial.group, work, sums_at(partials_ + task * sums_floats()));
    });
    std::int64_t next_partial = 0;
    for (const QueryTile& tile : tiles_) {
      const Sums total = sums_at(partials_ + next_partial * sums_floats());
      for (std::int64_t group = tile.first_group(); group < tile.end_group(); ++group, ++next_partial) {
        if (group == tile.first_group()) continue;
        merge(tile, total, sums_at(partials_ + next_partial * sums_floats()));
      }
      write_out(tile, total);
    }
    return {};
  }

 private:
  struct Partial {
    std::size_t tile = 0;
    std::int64_t group = 0;
  };

  /// Softmax sums of all rows of a tile (AttentionSums, row by row).
  struct Sums {
    float* highest = nullptr;  ///< [max_rows]
    float* total = nullptr;    ///< [max_rows]
    float* sums = nullptr;     ///< [max_rows, width]
  };

  struct Workspace {
    float* queries = nullptr;        ///< [register tiles, head_dim, lanes]
    float* keys = nullptr;           ///< [head_dim, panel]
    float* values = nullptr;         ///< [panel, width]
    float* scores = nullptr;         ///< [max_rows, panel]
    float* probabilities = nullptr;  ///< [panel, lanes]
    float* slopes = nullptr;         ///< [max_rows]
    float* group_sums = nullptr;
    float* total_sums = nullptr;
  };
  static constexpr int kWorkspaceParts = 8;

  std::int64_t panel() const { return kernels_.panel; }
  std::int64_t lanes() const { return kernels_.lanes; }
  std::int64_t padded_rows() const { return round_up(max_rows_, kMostLanes); }
  std::int64_t sums_floats() const { return padded_rows() * (width_ + 2); }
  Sums sums_at(float* p) const { return {p, p + padded_rows(), p + 2 * padded_rows()}; }
  /// Floats of the packed queries: every register tile takes a full vector of rows.
  std::int64_t query_floats() const {
    return RowTiles(max_rows_, kernels_.max_rows).count() * cache_.head_dim * lanes();
  }

  std::int64_t workspace_floats() const {
    return query_floats() + cache_.head_dim * panel() + panel() * width_ + max_rows_ * panel() + panel() * lanes() +
           max_rows_ + 2 * sums_floats();
  }

  Workspace make_workspace(ScratchPool::Lease& scratch) const {
    Workspace work;
    work.queries = scratch.floats(query_floats());
    work.keys = scratch.floats(cache_.head_dim * panel());
    work.values = scratch.floats(panel() * width_);
    std::fill_n(work.values, panel() * width_, 0.0F);  // the columns behind head_dim are never written
    work.scores = scratch.floats(max_rows_ * panel());
    work.probabilities = scratch.floats(panel() * lanes());
    work.slopes = scratch.floats(max_rows_);
    work.group_sums = scratch.floats(sums_floats());
    work.total_sums = scratch.floats(sums_floats());
    return work;
  }

  /// Long rows first, so that no thread is left with one at the end.
  void list_tiles() {
    const std::int64_t positions_per_tile = max_rows_ / heads_per_kv_;
    for (std::int64_t s = 0; s < p_.num_sequences; ++s) {
      const std::int64_t rows = p_.query_start[s + 1] - p_.query_start[s];
      const std::int64_t first_position = p_.context_len[s] - rows;
      for (std::int64_t end = rows; end > 0; end -= positions_per_tile) {
        const std::int64_t first = std::max<std::int64_t>(0, end - positions_per_tile);
        const std::int64_t position = first_position + first;
        const std::int64_t first_seen = p_.window > 0 ? std::max<std::int64_t>(0, position - p_.window + 1) : 0;
        for (std::int64_t kv_head = 0; kv_head < cache_.num_kv_heads; ++kv_head) {
          tiles_.push_back({s, kv_head, p_.query_start[s] + first, position, end - first, first_seen});
        }
      }
    }
  }

  /// Returns how many there are.
  std::int64_t list_partials() {
    for (std::size_t tile = 0; tile < tiles_.size(); ++tile) {
      for (std::int64_t group = tiles_[tile].first_group(); group < tiles_[tile].end_group(); ++group) {
        partial_tasks_.push_back({tile, group});
      }
    }
    return static_cast<std::int64_t>(partial_tasks_.size());
  }

  void attend_all_groups(const QueryTile& tile, const Workspace& work) const {
    pack_queries(tile, work);
    const Sums total = sums_at(work.total_sums);
    attend_group(tile, tile.first_group(), work, total);
    for (std::int64_t group = tile.first_group() + 1; group < tile.end_group(); ++group) {
      const Sums sums = sums_at(work.group_sums);
      attend_group(tile, group, work, sums);
      merge(tile, total, sums);
    }
    write_out(tile, total);
  }

  std::int64_t rows_of(const QueryTile& tile) const { return tile.count * heads_per_kv_; }

  /// Row r of a tile is position r / heads_per_kv, head r % heads_per_kv.
  const float* query_row(const QueryTile& tile, std::int64_t r) const {
    const std::int64_t head = tile.kv_head * heads_per_kv_ + r % heads_per_kv_;
    return p_.query + (tile.first_row + r / heads_per_kv_) * p_.query_stride + head * cache_.head_dim;
  }

  void pack_queries(const QueryTile& tile, const Workspace& work) const {
    const RowTiles row_tiles(rows_of(tile), kernels_.max_rows);
    for (std::int64_t t = 0; t < row_tiles.count(); ++t) {
      std::array<const void*, kMostLanes> rows;
      for (std::int64_t r = 0; r < lanes(); ++r) {
        const std::int64_t row = row_tiles.first_row(t) + std::min(r, row_tiles.rows(t) - 1);
        rows[static_cast<std::size_t>(r)] = query_row(tile, row);
      }
      kernels_.pack({.rows = rows.data(),
                     .dtype = DType::f32,
                     .first = 0,
                     .count = cache_.head_dim,
                     .dst = work.queries + t * cache_.head_dim * lanes(),
                     .pitch = lanes()});
    }
    if (p_.alibi_slopes == nullptr) return;
    for (std::int64_t r = 0; r < rows_of(tile); ++r) {
      work.slopes[r] = p_.alibi_slopes[tile.kv_head * heads_per_kv_ + r % heads_per_kv_];
    }
  }

  void attend_group(const QueryTile& tile, std::int64_t group, const Workspace& work, const Sums& sums) const {
    const std::int64_t rows = rows_of(tile);
    std::fill_n(sums.highest, rows, kNothingSeen);
    std::fill_n(sums.total, rows, 0.0F);
    std::fill_n(sums.sums, rows * width_, 0.0F);
    const std::int64_t first = std::max(tile.first_seen, group * kGroup);
    const std::int64_t end = std::min(tile.end_seen(), (group + 1) * kGroup);
    for (std::int64_t start = first / panel() * panel(); start < end; start += panel()) {
      attend_positions(tile, start, std::max(first, start), std::min(end, start + panel()), work, sums);
    }
  }

  /// Positions [first, end) of the position tile that begins at `start`.
  void attend_positions(const QueryTile& tile, std::int64_t start, std::int64_t first, std::int64_t end,
                        const Workspace& work, const Sums& sums) const {
    load_keys(tile, start, first, end, work);
    load_values(tile, start, first, end, work);
    const RowTiles row_tiles(rows_of(tile), kernels_.max_rows);
    for (std::int64_t t = 0; t < row_tiles.count(); ++t) {
      const std::int64_t first_row = row_tiles.first_row(t);
      float* scores = work.scores + first_row * panel();
      kernels_.gemm_tile({.x = work.queries + t * cache_.head_dim * lanes(),
                          .x_pitch = lanes(),
                          .w = work.keys,
                          .w_pitch = panel(),
                          .c = scores,
                          .c_pitch = panel(),
                          .rows = row_tiles.rows(t),
                          .k = cache_.head_dim,
                          .first = true});
    }
    soften(tile, start, work, sums);
    for (std::int64_t t = 0; t < row_tiles.count(); ++t) {
      add_values(row_tiles.first_row(t), row_tiles.rows(t), first - start, end - start, work, sums);
    }
  }

  void soften(const QueryTile& tile, std::int64_t start, const Workspace& work, const Sums& sums) const {
    for (std::int64_t position = 0; position < tile.count; ++position) {
      const std::int64_t row = position * heads_per_kv_;
      kernels_.softmax_tile({.scores = work.scores + row * panel(),
                             .rows = heads_per_kv_,
                             .first_position = start,
                             .position = tile.first_position + position,
                             .window = p_.window,
                             .scale = p_.scale,
                             .softcap = p_.softcap,
                             .slopes = p_.alibi_slopes == nullptr ? nullptr : work.slopes + row,
                             .highest = sums.highest + row,
                             .total = sums.total + row,
                             .sums = sums.sums + row * width_,
                             .width = width_});
    }
  }

  /// sums[row, :] += sum over j in [first, end) of probability[row, j] * value[j, :].
  void add_values(std::int64_t first_row, std::int64_t rows, std::int64_t first, std::int64_t end,
                  const Workspace& work, const Sums& sums) const {
    std::array<const void*, kMostLanes> score_rows;
    for (std::int64_t r = 0; r < lanes(); ++r) {
      score_rows[static_cast<std::size_t>(r)] = work.scores + (first_row + std::min(r, rows - 1)) * panel();
    }
    kernels_.pack({.rows = score_rows.data(),
                   .dtype = DType::f32,
                   .first = 0,
                   .count = panel(),
                   .dst = work.probabilities,
                   .pitch = lanes()});
    for (std::int64_t column = 0; column < width_; column += panel()) {
      kernels_.gemm_tile({.x = work.probabilities + first * lanes(),
                          .x_pitch = lanes(),
                          .w = work.values + first * width_ + column,
                          .w_pitch = width_,
                          .c = sums.sums + first_row * width_ + column,
                          .c_pitch = width_,
                          .rows = rows,
                          .k = end - first,
                          .first = false});
    }
  }

  std::int64_t block_of(const QueryTile& tile, std::int64_t position) const {
    return p_.block_tables[tile.sequence * p_.max_blocks + position / cache_.block_size];
  }

  /// Bytes from a block's start (of K or of V) to the head's row of `position`.
  std::int64_t row_offset(const QueryTile& tile, std::int64_t position) const {
    return (tile.kv_head * cache_.block_size + position % cache_.block_size) * row_bytes();
  }
  std::int64_t row_bytes() const { return cache_.head_dim * static_cast<std::int64_t>(size_of(cache_.dtype)); }

  void load_keys(const QueryTile& tile, std::int64_t start, std::int64_t first, std::int64_t end,
                 const Workspace& work) const {
    for (std::int64_t half = 0; half < panel(); half += lanes()) {
      std::array<const void*, kMostLanes> rows;
      for (std::int64_t r = 0; r < lanes(); ++r) {
        const std::int64_t position = std::clamp(start + half + r, first, end - 1);
        rows[static_cast<std::size_t>(r)] = cache_.key_block(block_of(tile, position)) + row_offset(tile, position);
      }
      kernels_.pack({.rows = rows.data(),
                     .dtype = cache_.dtype,
                     .first = 0,
                     .count = cache_.head_dim,
                     .dst = work.keys + half,
                     .pitch = panel()});
    }
  }

  void load_values(const QueryTile& tile, std::int64_t start, std::int64_t first, std::int64_t end,
                   const Workspace& work) const {
    for (std::int64_t position = first; position < end; ++position) {
      kernels_.widen(cache_.value_block(block_of(tile, position)) + row_offset(tile, position), cache_.dtype,
                     cache_.head_dim, work.values + (position - start) * width_);
    }
  }

  void merge(const QueryTile& tile, const Sums& into, const Sums& later) const {
    for (std::int64_t r = 0; r < rows_of(tile); ++r) {
      kernels_.merge_sums({into.highest + r, into.total + r, into.sums + r * width_},
                          {later.highest + r, later.total + r, later.sums + r * width_}, width_);
    }
  }

  void write_out(const QueryTile& tile, const Sums& sums) const {
    for (std::int64_t r = 0; r < rows_of(tile); ++r) {
      const std::int64_t head = tile.kv_head * heads_per_kv_ + r % heads_per_kv_;
      float* out = p_.out + ((tile.first_row + r / heads_per_kv_) * p_.num_heads + head) * cache_.head_dim;
      kernels_.scale(sums.sums + r * width_, 1.0F / sums.total[r], cache_.head_dim, out);
    }
  }

  const CpuKernels& kernels_;
  ThreadPool& threads_;
  const PagedAttentionParams& p_;
  const KvCacheView& cache_;
  std::int64_t heads_per_kv_;
  std::int64_t width_;  ///< head_dim, rounded up to whole panels
  std::int64_t max_rows_;
  std::vector<QueryTile> tiles_;
  std::vector<Partial> partial_tasks_;
  float* partials_ = nullptr;
};

}  // namespace

Status cpu_paged_attention(const CpuKernels& kernels, ThreadPool& threads, ScratchPool& scratch,
                           const PagedAttentionParams& params) {
  return PagedAttention(kernels, threads, params).run(scratch);
}

}  // namespace pagoda::kernels

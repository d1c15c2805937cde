#pragma once

#include <cstdint>
#include <utility>

#include "kernels/cpu/attention_call.hpp"
#include "kernels/cpu/kernel_table.hpp"
#include "kernels/cpu/row_tiles.hpp"
#include "kernels/cpu/scratch_pool.hpp"

namespace pagoda::kernels {

/// Attention with vector registers, for keys and values of any type. `call` must outlive it.
class VectorAttention {
 public:
  /// Upper bound of the query rows of one KV head in a task, unless one position has more. Each key and value is
  /// widened once for all these rows.
  static constexpr std::int64_t kMaxTaskRows = 56;

  struct Workspace {
    float* queries = nullptr;        ///< per KV head, register tile t at first_row(t) * padded_dim: [steps, rows, 4]
    float* keys = nullptr;           ///< [steps, 4 * linear_panel]
    float* values = nullptr;         ///< [score_tile, width], or pairs of values
    float* scores = nullptr;         ///< [max_rows, score_tile], of one KV head
    float* probabilities = nullptr;  ///< [score_tile, lanes], or pairs of them
    float* slopes = nullptr;         ///< [tile rows]
  };
  static constexpr int kWorkspaceParts = 6;

  VectorAttention(const AttentionCall& call, std::int64_t max_rows);

  /// Returns the number of positions in a tile.
  std::int64_t tile() const { return kernels_.score_tile; }
  /// Returns the elements of a row's sums: head_dim, rounded up.
  std::int64_t width() const { return width_; }
  /// Returns TileLimits::rows_together.
  std::int64_t rows_together() const { return kernels_.stream_rows; }

  /// `tile_rows`: maximum rows of a tile, over all its KV heads.
  std::int64_t workspace_floats(std::int64_t tile_rows) const;
  Workspace make_workspace(ScratchPool::Lease& scratch, std::int64_t tile_rows) const;

  /// Must precede attend_tile. `gathered`: [rows of one KV head, head_dim], overwritten.
  void pack_queries(const QueryTile& query, const Workspace& work, float* gathered) const;
  /// Adds the positions of a tile to the sums of the head's rows.
  void attend_tile(const HeadTile& part, const Workspace& work, const RowSums& sums) const;
  /// Returns the unit of the sums of values.
  float unit() const { return cache_.dtype == DType::fp8_e4m3 ? kFp8Unit : 1.0F; }

 private:
  std::int64_t lanes() const { return kernels_.lanes; }
  /// Returns whether keys and values are read as they are stored; with more rows they are widened once for all rows.
  bool streams(const QueryTile& query) const { return call_.rows_of(query) <= kernels_.stream_rows; }
  bool scaled() const { return cache_.dtype == DType::int8; }
  bool paired() const;
  std::pair<std::int64_t, std::int64_t> value_range(const Positions& positions) const;
  RowTiles score_tiles(const QueryTile& query) const;
  NextRows next_rows(const HeadTile& part, std::int64_t from, std::int64_t to) const;
  NextRows next_of_scores(const HeadTile& part) const { return next_rows(part, 0, 56); }
  NextRows next_of_softmax(const HeadTile& part) const { return next_rows(part, 56, 74); }
  NextRows next_of_values(const HeadTile& part) const { return next_rows(part, 74, 128); }

  void pack_queries_of_head(const QueryTile& query, std::int64_t head, const Workspace& work, float* gathered) const;
  WeightPiece keys_at(const Positions& positions, std::int64_t at, std::int64_t rows) const;
  void score_from_memory(const HeadTile& part, const Workspace& work) const;
  void score_packed(const HeadTile& part, const Workspace& work) const;
  void score_tile(const Workspace& work, const RowTiles& tiles, std::int64_t t, std::int64_t at) const;
  void softmax(const HeadTile& part, const Workspace& work, const RowSums& sums) const;
  void add_values_from_memory(const HeadTile& part, const Workspace& work, const RowSums& sums) const;
  void add_widened_values(const HeadTile& part, const Workspace& work, const RowSums& sums) const;
  void pack_probabilities(std::int64_t first_row, std::int64_t rows, const Workspace& work) const;

  const AttentionCall& call_;
  const KvCacheView& cache_;
  const CpuKernels& kernels_;
  std::int64_t max_rows_;  ///< maximum rows of one KV head in a tile
  std::int64_t padded_dim_;
  std::int64_t width_;
};

}  // namespace pagoda::kernels

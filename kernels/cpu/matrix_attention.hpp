#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/cpu/attention_call.hpp"
#include "kernels/cpu/matrix_kernels.hpp"
#include "kernels/cpu/row_tiles.hpp"
#include "kernels/cpu/scratch_pool.hpp"

namespace pagoda::kernels {

/// Attention on a matrix unit, for bfloat16 keys and values and any number of query rows. Its members are those of
/// VectorAttention.
class MatrixAttention {
 public:
  /// Upper bound of the query rows of one KV head in a task, unless one position has more. Keys and values are read,
  /// and values are rearranged, once for all these rows.
  static constexpr std::int64_t kMaxTaskRows = 128;

  struct Workspace {
    float* queries = nullptr;    ///< [heads, tiles of rows, steps, kMatrixStep / 2, kMatrixTileRows]
    float* slopes = nullptr;     ///< [heads, padded rows]
    float* positions = nullptr;  ///< [padded rows], as first_seen: see MatrixAttentionArgs
    float* first_seen = nullptr;
    float* key_copies = nullptr;
    float* value_pairs = nullptr;
  };
  static constexpr int kWorkspaceParts = 6;

  /// Whether this way computes a call.
  static bool computes(const CpuKernels& kernels, const PagedAttentionParams& params) {
    return has_matrix_unit(kernels) && params.cache.dtype == DType::bf16;
  }

  MatrixAttention(const AttentionCall& call, std::int64_t max_rows);

  std::int64_t tile() const { return kMatrixPositions; }
  std::int64_t width() const { return width_; }
  std::int64_t rows_together() const { return kMatrixTileRows; }
  // The bound of a tile's rows here includes padding, so the caller's is not used.
  std::int64_t workspace_floats(std::int64_t) const;
  Workspace make_workspace(ScratchPool::Lease& scratch, std::int64_t) const;
  void pack_queries(const QueryTile& query, const Workspace& work, float* gathered) const;
  void attend_tile(const HeadTile& part, const Workspace& work, const RowSums& sums) const;
  float unit() const { return 1.0F; }

 private:
  std::int64_t padded_rows(const QueryTile& query) const { return round_up(call_.rows_of(query), kMatrixTileRows); }
  /// Returns an upper bound of the padded rows of all heads of a tile.
  std::int64_t most_padded_rows() const;

  const AttentionCall& call_;
  const KvCacheView& cache_;
  std::int64_t max_rows_;    ///< maximum rows of one KV head in a tile
  std::int64_t padded_dim_;  ///< head_dim, rounded up to whole steps
  std::int64_t width_;
};

}  // namespace pagoda::kernels

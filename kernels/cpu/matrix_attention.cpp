#include "kernels/cpu/matrix_attention.hpp"

#include <algorithm>

namespace pagoda::kernels {
static_assert(kMatrixPositions <= kMaxScoreTile && kAttentionGroup % kMatrixPositions == 0 &&
              kMatrixPositions % kMatrixStep == 0);

MatrixAttention::MatrixAttention(const AttentionCall& call, std::int64_t max_rows)
    : call_(call),
      cache_(call.params.cache),
      max_rows_(max_rows),
      padded_dim_(round_up(cache_.head_dim, kMatrixStep)),
      width_(round_up(cache_.head_dim, 2 * kMatrixPanel)) {}

std::int64_t MatrixAttention::most_padded_rows() const {
  // A tile has several heads only if each has at most rows_together(), one tile of rows.
  return std::max(round_up(max_rows_, kMatrixTileRows), cache_.num_kv_heads * rows_together());
}

std::int64_t MatrixAttention::workspace_floats(std::int64_t) const {
  return most_padded_rows() * (padded_dim_ / 2 + 3) + kMatrixPositions * padded_dim_ / 2 +
         kMatrixPositions / 2 * width_;
}

MatrixAttention::Workspace MatrixAttention::make_workspace(ScratchPool::Lease& scratch, std::int64_t) const {
  Workspace work;
  work.queries = scratch.floats(most_padded_rows() * padded_dim_ / 2);
  work.slopes = scratch.floats(most_padded_rows());
  work.positions = scratch.floats(most_padded_rows());
  work.first_seen = scratch.floats(most_padded_rows());
  work.key_copies = scratch.floats(kMatrixPositions * padded_dim_ / 2);
  work.value_pairs = scratch.floats(kMatrixPositions / 2 * width_);
  std::fill_n(work.value_pairs, kMatrixPositions / 2 * width_, 0.0F);  // columns from head_dim on are never written
  return work;
}

void MatrixAttention::pack_queries(const QueryTile& query, const Workspace& work, float* gathered) const {
  const std::int64_t rows = call_.rows_of(query);
  const std::int64_t padded = padded_rows(query);
  const std::int64_t row_bytes = cache_.head_dim * kMatrixBf16Bytes;
  auto* const rounded = reinterpret_cast<std::byte*>(gathered);
  for (std::int64_t head = 0; head < query.num_kv_heads; ++head) {
    for (std::int64_t r = 0; r < rows; ++r) {
      call_.kernels.narrow(call_.query_row(query, head, r), cache_.head_dim, DType::bf16, rounded + r * row_bytes);
    }
    float* const packed = work.queries + head * padded * padded_dim_ / 2;
    for (std::int64_t first = 0; first < rows; first += kMatrixTileRows) {
      call_.kernels.matrix.pack({.w = rounded + first * row_bytes,
                                 .row_bytes = row_bytes,
                                 .rows = std::min(kMatrixTileRows, rows - first),
                                 .columns = cache_.head_dim,
                                 .panel = reinterpret_cast<std::byte*>(packed + first * padded_dim_ / 2)});
    }
    if (call_.params.alibi_slopes == nullptr) continue;
    for (std::int64_t r = 0; r < padded; ++r) {
      work.slopes[head * padded + r] = call_.params.alibi_slopes[call_.query_head(query, head, std::min(r, rows - 1))];
    }
  }
  for (std::int64_t r = 0; r < padded; ++r) {
    const std::int64_t position = query.first_position + std::min(r, rows - 1) / call_.heads_per_kv();
    work.positions[r] = static_cast<float>(position);
    work.first_seen[r] = static_cast<float>(call_.params.first_seen(position));
  }
}

void MatrixAttention::attend_tile(const HeadTile& part, const Workspace& work, const RowSums& sums) const {
  const std::int64_t rows = call_.rows_of(part.query);
  const std::int64_t first_row = part.head * padded_rows(part.query);
  NextRows next;
  // Prefetching values as well makes decodes slower: the hardware prefetches values, which are read row by row.
  if (rows <= rows_together()) next = {part.next.keys(), kMatrixPositions, cache_.head_dim * kMatrixBf16Bytes};
  call_.kernels.matrix.attend({.queries = work.queries + first_row * padded_dim_ / 2,
                               .rows = rows,
                               .head_dim = cache_.head_dim,
                               .keys = part.positions.keys(),
                               .values = part.positions.values(),
                               .first_position = part.positions.start,
                               .first = part.positions.first - part.positions.start,
                               .end = part.positions.end - part.positions.start,
                               .positions = work.positions,
                               .first_seen = work.first_seen,
                               .scale = call_.params.scale,
                               .softcap = call_.params.softcap,
                               .slopes = call_.params.alibi_slopes == nullptr ? nullptr : work.slopes + first_row,
                               .highest = sums.highest,
                               .total = sums.total,
                               .sums = sums.sums,
                               .width = width_,
                               .key_copies = reinterpret_cast<std::byte*>(work.key_copies),
                               .value_pairs = work.value_pairs,
                               .next = next});
}

}  // namespace pagoda::kernels

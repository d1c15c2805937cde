#include "kernels/cpu/vector_attention.hpp"

#include <algorithm>
#include <array>
#include <cstddef>

#include "kernels/cpu/linear.hpp"

namespace pagoda::kernels {
namespace {

/// Upper bound of the sums of a register tile of scores over all instruction sets.
constexpr std::int64_t kMaxTileSums = 128;

bool is_seen(const Positions& positions, std::int64_t at, std::int64_t count) {
  return positions.start + at < positions.end && positions.start + at + count > positions.first;
}

}  // namespace

VectorAttention::VectorAttention(const AttentionCall& call, std::int64_t max_rows)
    : call_(call),
      cache_(call.params.cache),
      kernels_(call.kernels),
      max_rows_(max_rows),
      padded_dim_(round_up(cache_.head_dim, kLinearPadding)),
      width_(round_up(cache_.head_dim, call.kernels.panel)) {}

std::int64_t VectorAttention::workspace_floats(std::int64_t tile_rows) const {
  return tile_rows * padded_dim_ + padded_dim_ * kernels_.linear_panel + tile() * width_ + max_rows_ * tile() +
         tile() * lanes() + tile_rows;
}

VectorAttention::Workspace VectorAttention::make_workspace(ScratchPool::Lease& scratch, std::int64_t tile_rows) const {
  Workspace work;
  work.queries = scratch.floats(tile_rows * padded_dim_);
  work.keys = scratch.floats(padded_dim_ * kernels_.linear_panel);
  work.values = scratch.floats(tile() * width_);
  std::fill_n(work.values, tile() * width_, 0.0F);  // columns from head_dim on are never written
  work.scores = scratch.floats(max_rows_ * tile());
  work.probabilities = scratch.floats(tile() * lanes());
  work.slopes = scratch.floats(tile_rows);
  return work;
}

void VectorAttention::pack_queries(const QueryTile& query, const Workspace& work, float* gathered) const {
  for (std::int64_t head = 0; head < query.num_kv_heads; ++head) pack_queries_of_head(query, head, work, gathered);
}

RowTiles VectorAttention::score_tiles(const QueryTile& query) const {
  return {call_.rows_of(query), streams(query) ? kernels_.stream_rows : kernels_.linear_rows};
}

void VectorAttention::pack_queries_of_head(const QueryTile& query, std::int64_t head, const Workspace& work,
                                           float* gathered) const {
  // Rows of one position are adjacent, but rows of different positions are not, so all rows are gathered first.
  const std::int64_t dim = cache_.head_dim;
  const std::int64_t first_row = head * call_.rows_of(query);
  for (std::int64_t r = 0; r < call_.rows_of(query); ++r)
    std::copy_n(call_.query_row(query, head, r), dim, gathered + r * dim);
  const RowTiles tiles = score_tiles(query);
  for (std::int64_t t = 0; t < tiles.count(); ++t) {
    kernels_.pack_rows({.x = gathered + tiles.first_row(t) * dim,
                        .rows = tiles.rows(t),
                        .k = dim,
                        .x_pitch = dim,
                        .paired = cache_.dtype == DType::bf16,
                        .dst = work.queries + (first_row + tiles.first_row(t)) * padded_dim_});
  }
  if (call_.params.alibi_slopes == nullptr) return;
  for (std::int64_t r = 0; r < call_.rows_of(query); ++r) {
    work.slopes[first_row + r] = call_.params.alibi_slopes[call_.query_head(query, head, r)];
  }
}

/// Returns the next keys and values that a step of the work on a tile prefetches: the share from `from` to `to`, in
/// units of 1/128. The share is about the step's share of the time, measured with 8 heads on a Zen 4.
NextRows VectorAttention::next_rows(const HeadTile& part, std::int64_t from, std::int64_t to) const {
  constexpr std::int64_t kWhole = 128;
  const std::int64_t first = 2 * tile() * from / kWhole;
  return {part.next.rows.data() + first, 2 * tile() * to / kWhole - first,
          cache_.head_dim * static_cast<std::int64_t>(size_of(cache_.dtype))};
}

void VectorAttention::attend_tile(const HeadTile& part, const Workspace& work, const RowSums& sums) const {
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

/// Returns whether values are multiplied as pairs of bfloat16. Positions are then processed in pairs that begin at an
/// even index in the tile.
bool VectorAttention::paired() const {
  return cache_.dtype == DType::bf16 && kernels_.bf16_quad > 4;
}

/// Returns the range of indices in the tile that the sums of values cover; unseen positions in it have probability 0.
std::pair<std::int64_t, std::int64_t> VectorAttention::value_range(const Positions& positions) const {
  const std::int64_t at_once = paired() ? 2 : 1;
  return {(positions.first - positions.start) / at_once * at_once, round_up(positions.end - positions.start, at_once)};
}

/// Returns the keys at tile indices [at, at + one panel).
WeightPiece VectorAttention::keys_at(const Positions& positions, std::int64_t at, std::int64_t rows) const {
  return {.w = nullptr,
          .dtype = cache_.dtype,
          .rows = rows,
          .row_bytes = 0,
          .first = 0,
          .count = cache_.head_dim,
          .row_pointers = positions.keys() + at};
}

void VectorAttention::score_from_memory(const HeadTile& part, const Workspace& work) const {
  const Positions& positions = part.positions;
  kernels_.scores_stream({.queries = work.queries + part.head * call_.rows_of(part.query) * padded_dim_,
                          .rows = call_.rows_of(part.query),
                          .keys = positions.keys(),
                          .dtype = cache_.dtype,
                          .head_dim = cache_.head_dim,
                          .first = positions.first - positions.start,
                          .end = positions.end - positions.start,
                          .scores = work.scores,
                          .next = next_of_scores(part)});
}

void VectorAttention::score_packed(const HeadTile& part, const Workspace& work) const {
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
void VectorAttention::score_tile(const Workspace& work, const RowTiles& tiles, std::int64_t t, std::int64_t at) const {
  const std::int64_t keys = kernels_.linear_panel;
  std::array<float, kMaxTileSums> sums;
  for (std::int64_t k = 0; k < padded_dim_; k += kLinearBlock) {
    kernels_.linear_tile(
        {.x = work.queries + tiles.first_row(t) * padded_dim_ + 4 * steps_of(kernels_, cache_.dtype, k) * tiles.rows(t),
         .w = work.keys + 4 * steps_of(kernels_, cache_.dtype, k) * keys,
         .dtype = cache_.dtype,
         .rows = tiles.rows(t),
         .steps = steps_of(kernels_, cache_.dtype, std::min(kLinearBlock, padded_dim_ - k)),
         .sums = {.sums = sums.data(),
                  .starts_at_zero = k == 0,
                  .last = k + kLinearBlock >= padded_dim_,
                  .out = {.out = work.scores + tiles.first_row(t) * tile() + at, .stride = tile(), .columns = keys}}});
  }
}

void VectorAttention::softmax(const HeadTile& part, const Workspace& work, const RowSums& sums) const {
  const QueryTile& query = part.query;
  Scales scales;
  if (scaled()) scales = scales_at(cache_, call_.table_of(query), query.first_kv_head + part.head, part.positions);
  for (std::int64_t i = 0; i < query.count; ++i) {
    const std::int64_t row = i * call_.heads_per_kv();
    const float* slopes = work.slopes + part.head * call_.rows_of(query) + row;
    kernels_.softmax_tile({.scores = work.scores + row * tile(),
                           .rows = call_.heads_per_kv(),
                           .first_position = part.positions.start,
                           .position = query.first_position + i,
                           .first_seen = call_.params.first_seen(query.first_position + i),
                           .scale = call_.params.scale * unit(),
                           .softcap = call_.params.softcap,
                           .slopes = call_.params.alibi_slopes == nullptr ? nullptr : slopes,
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
void VectorAttention::add_values_from_memory(const HeadTile& part, const Workspace& work, const RowSums& sums) const {
  if (cache_.head_dim % lanes() != 0) return add_widened_values(part, work, sums);
  const auto [first, end] = value_range(part.positions);
  kernels_.values_stream({.values = part.positions.values() + first,
                          .dtype = cache_.dtype,
                          .count = end - first,
                          .p = work.scores + first,
                          .p_pitch = tile(),
                          .rows = call_.rows_of(part.query),
                          .sums = sums.sums,
                          .width = width_,
                          .columns = cache_.head_dim,
                          .next = next_of_values(part)});
}

void VectorAttention::add_widened_values(const HeadTile& part, const Workspace& work, const RowSums& sums) const {
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
  const RowTiles tiles(call_.rows_of(part.query), kernels_.max_rows);
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
void VectorAttention::pack_probabilities(std::int64_t first_row, std::int64_t rows, const Workspace& work) const {
  std::array<const float*, kMaxLanes> score_rows;
  for (std::int64_t r = 0; r < lanes(); ++r) {
    score_rows[static_cast<std::size_t>(r)] = work.scores + (first_row + std::min(r, rows - 1)) * tile();
  }
  kernels_.pack({.rows = score_rows.data(), .count = tile(), .paired = paired(), .dst = work.probabilities});
}

}  // namespace pagoda::kernels

// Attention on a matrix unit (see matrix_kernels.hpp). Included once per matrix unit, after math.inl.hpp and
// matrix_linear.inl.hpp; PAGODA_SIMD names the namespace.
//
// Keys are the rows of a product whose columns are query rows, so that keys are read as they are stored, and each lane
// of the softmax is a query row.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "kernels/cpu/matrix_kernels.hpp"
#include "kernels/cpu/simd/first_lanes.inl.hpp"
#include "kernels/cpu/simd/prefetch.hpp"

namespace pagoda::kernels::PAGODA_SIMD {
namespace {

static_assert(kMatrixPanel == kMatrixTileRows);
constexpr std::int64_t kPositionTiles = kMatrixPositions / kMatrixTileRows;
constexpr std::int64_t kTileFloats = kMatrixTileRows * kMatrixTileRows;
constexpr int kChains = 4;  ///< maxima and totals are of every fourth position, so that they do not wait for each other

/// Tiles 0, 1 and 4, 5 are sums; with full tiles of rows 0 and 1, and with the last tile of rows 4 and 5. Scores use 0
/// and 1. Probabilities are tiles 2 and 6. Keys are 2 and 3, queries 7, values 3 and 7.
template <bool full>
struct ValueTiles {
  static constexpr int kSums = full ? 0 : 4;
  static constexpr int kProbabilities = full ? 2 : 6;
};

void shape_attention_tiles(std::int64_t last_rows) {
  TileShapes shapes;
  for (int tile = 0; tile < 8; ++tile) {
    shapes.set(tile, tile >= 4 && tile <= 6 ? last_rows : kMatrixTileRows, kMatrixLine);
  }
  configure(shapes);
}

/// Keys of 16 positions, as a tile is loaded.
struct StoredTile {
  const std::byte* first = nullptr;
  std::int64_t row_bytes = 0;
};

/// Returns the keys of one of the tiles of 16 positions. They are copied if they are not whole steps, evenly spaced in
/// memory.
inline StoredTile keys_of(const MatrixAttentionArgs& args, std::int64_t tile) {
  const void* const* keys = args.keys + tile * kMatrixTileRows;
  const auto* first = static_cast<const std::byte*>(keys[0]);
  const std::int64_t row_bytes = args.head_dim * kMatrixBf16Bytes;
  bool as_needed = row_bytes % kMatrixLine == 0;
  for (std::int64_t r = 1; r < kMatrixTileRows; ++r) as_needed &= keys[r] == first + r * row_bytes;
  if (as_needed) return {first, row_bytes};
  const std::int64_t padded_bytes = (row_bytes + kMatrixLine - 1) / kMatrixLine * kMatrixLine;
  std::byte* copy = args.key_copies + tile * kMatrixTileRows * padded_bytes;
  for (std::int64_t r = 0; r < kMatrixTileRows; ++r) {
    std::byte* row = copy + r * padded_bytes;
    std::memcpy(row, keys[r], static_cast<std::size_t>(row_bytes));
    std::memset(row + row_bytes, 0, static_cast<std::size_t>(padded_bytes - row_bytes));
  }
  return {copy, padded_bytes};
}

/// Writes the scores of 16 rows at `count` tiles of positions: scores[position, row].
template <int count>
inline void score_tiles(const StoredTile* keys, const float* queries, std::int64_t steps, float* scores) {
  zero_tile<0>();
  if constexpr (count > 1) zero_tile<1>();
  for (std::int64_t step = 0; step < steps; ++step) {
    load_tile<7>(queries + step * kTileFloats, kMatrixLine);
    load_tile<2>(keys[0].first + step * kMatrixLine, keys[0].row_bytes);
    if constexpr (count > 1) load_tile<3>(keys[1].first + step * kMatrixLine, keys[1].row_bytes);
    add_bf16<0, 2, 7>();
    if constexpr (count > 1) add_bf16<1, 3, 7>();
  }
  store_tile<0>(scores, kMatrixLine);
  if constexpr (count > 1) store_tile<1>(scores + kTileFloats, kMatrixLine);
}

/// Writes the values of positions 2 * pair and 2 * pair + 1 side by side: each float of the result is two bfloat16.
inline void pair_values(const MatrixAttentionArgs& args, std::int64_t pair) {
  const auto* first = static_cast<const std::byte*>(args.values[2 * pair]);
  const auto* second = static_cast<const std::byte*>(args.values[2 * pair + 1]);
  float* to = args.value_pairs + pair * args.width;
  const std::int64_t whole = args.head_dim / kLanes * kLanes;
  for (std::int64_t i = 0; i < whole; i += kLanes) {
    store(to + i, load_pairs_bf16(first + i * kMatrixBf16Bytes, second + i * kMatrixBf16Bytes));
  }
  if (whole == args.head_dim) return;
  std::uint16_t rest[2][kLanes] = {};
  const auto rest_bytes = static_cast<std::size_t>((args.head_dim - whole) * kMatrixBf16Bytes);
  std::memcpy(rest[0], first + whole * kMatrixBf16Bytes, rest_bytes);
  std::memcpy(rest[1], second + whole * kMatrixBf16Bytes, rest_bytes);
  store(to + whole, load_pairs_bf16(rest[0], rest[1]));
}

/// Returns 2^x for x up to 1, with a relative error of up to 2e-7; exactly 0 below -126; NaN stays NaN.
inline Vec exp2(Vec x) {
  constexpr float kMinArgument = -126.0F;
  constexpr float kExp2[] = {1.0F, 0.693147004F, 0.240222424F, 0.0555073358F, 0.00967151299F, 0.00132647273F};
  const Vec clamped = max(set1(kMinArgument), x);
  const Vec n = round(clamped);
  const Vec y = times_power_of_two(polynomial(clamped - n, kExp2), n);
  return select_less(x, set1(kMinArgument), zero(), y);
}

/// Some rows of a tile of rows, one in each lane.
struct RowLanes {
  std::int64_t first_row = 0;
  std::int64_t rows = 0;            ///< 1 .. kLanes
  float* scores = nullptr;          ///< [kMatrixPositions, kMatrixTileRows], from the column of the first row on
  float* pairs = nullptr;           ///< [kMatrixPositions / 2, kMatrixTileRows]: probabilities of two positions
  std::int64_t first_position = 0;  ///< in the tile: there are scores for [first_position, end_position)
  std::int64_t end_position = 0;
};

/// Scales, caps, biases and masks scores, in place. Returns their maxima.
inline Vec finish_scores(const MatrixAttentionArgs& args, const RowLanes& lanes, bool scales) {
  const Vec first_seen = load(args.first_seen + lanes.first_row);
  const Vec position = load(args.positions + lanes.first_row);
  const Vec slopes = args.slopes == nullptr ? zero() : load(args.slopes + lanes.first_row);
  Vec highest = set1(-kInfinity);
  for (std::int64_t i = lanes.first_position; i < lanes.end_position; ++i) {
    const Vec key_position = set1(static_cast<float>(args.first_position + i));
    Vec x = load(lanes.scores + i * kMatrixTileRows);
    if (scales) x = x * set1(args.scale);
    if (args.softcap > 0.0F) x = set1(args.softcap) * tanh(x / set1(args.softcap));
    if (args.slopes != nullptr) x = fma(slopes, key_position - position, x);
    x = select_less(position, key_position, set1(-kInfinity), x);
    x = select_less(key_position, first_seen, set1(-kInfinity), x);
    store(lanes.scores + i * kMatrixTileRows, x);
    highest = max(x, highest);
  }
  return highest;
}

/// Returns whether all rows see all positions of the tile.
inline bool sees_all(const MatrixAttentionArgs& args, const RowLanes& lanes) {
  return static_cast<float>(args.first_position + kMatrixPositions - 1) <= args.positions[lanes.first_row] &&
         static_cast<float>(args.first_position) >= args.first_seen[lanes.first_row + lanes.rows - 1];
}

/// Turns scores into probabilities. Writes the factors of the old sums of values.
inline void softmax_lanes(const MatrixAttentionArgs& args, const RowLanes& lanes, RowPrefetcher& prefetcher,
                          float* factors) {
  const bool scaled_first = args.softcap > 0.0F || args.slopes != nullptr || !(args.scale > 0.0F);
  Vec tile_highest;
  if (scaled_first || !sees_all(args, lanes)) {
    tile_highest = finish_scores(args, lanes, scaled_first);
  } else {
    Vec maxima[kChains];
    for (Vec& chain : maxima) chain = set1(-kInfinity);
    for (std::int64_t i = lanes.first_position; i < lanes.end_position; i += kChains) {
#pragma GCC unroll 4
      for (int c = 0; c < kChains; ++c) maxima[c] = max(load(lanes.scores + (i + c) * kMatrixTileRows), maxima[c]);
    }
    tile_highest = max(max(maxima[0], maxima[1]), max(maxima[2], maxima[3]));
  }
  if (!scaled_first) tile_highest = tile_highest * set1(args.scale);
  const Vec before = load_first(args.highest + lanes.first_row, lanes.rows);
  const Vec after = max(tile_highest, before);
  const Vec factor = set1(scaled_first ? kLog2E : args.scale * kLog2E);
  // A row that has seen nothing so far has only scores of -infinity, whose probability is to be 0.
  const Vec reference = select_less(set1(-kInfinity), after, after, zero()) * set1(-kLog2E);
  Vec totals[kChains];
  for (Vec& chain : totals) chain = zero();
  for (std::int64_t i = lanes.first_position; i < lanes.end_position; i += kChains) {
    prefetcher.advance(kChains);
    Vec p[kChains];
#pragma GCC unroll 4
    for (int c = 0; c < kChains; ++c) {
      p[c] = exp2(fma(load(lanes.scores + (i + c) * kMatrixTileRows), factor, reference));
      totals[c] = totals[c] + p[c];
    }
    store(lanes.pairs + i / 2 * kMatrixTileRows, round_to_pairs(p[0], p[1]));
    store(lanes.pairs + (i / 2 + 1) * kMatrixTileRows, round_to_pairs(p[2], p[3]));
  }
  const Vec correction = select_less(before, after, exp2((before - after) * set1(kLog2E)), set1(1.0F));
  const Vec total = load_first(args.total + lanes.first_row, lanes.rows);
  const Vec tile_total = (totals[0] + totals[1]) + (totals[2] + totals[3]);
  store_first(args.total + lanes.first_row, lanes.rows, fma(total, correction, tile_total));
  store_first(args.highest + lanes.first_row, lanes.rows, after);
  store(factors, correction);
}

inline void scale_sums(float* sums, std::int64_t width, float factor) {
  if (factor == 1.0F) return;
  for (std::int64_t i = 0; i < width; i += kLanes) store(sums + i, load(sums + i) * set1(factor));
}

/// sums[row, column] += probabilities [steps, rows, kMatrixStep] times pairs of values, for up to 16 rows.
template <bool full>
inline void add_value_tiles(const float* probabilities, const float* pairs, std::int64_t steps, std::int64_t width,
                            float* sums) {
  constexpr int kSums = ValueTiles<full>::kSums;
  constexpr int kProbabilities = ValueTiles<full>::kProbabilities;
  const std::int64_t stride = width * kFloatBytes;
  for (std::int64_t column = 0; column < width; column += 2 * kMatrixPanel) {
    load_tile<kSums>(sums + column, stride);
    load_tile<kSums + 1>(sums + column + kMatrixPanel, stride);
    for (std::int64_t step = 0; step < steps; ++step) {
      const float* values = pairs + step * kMatrixStep / 2 * width + column;
      load_tile<kProbabilities>(probabilities + step * kTileFloats, kMatrixLine);
      load_tile<3>(values, stride);
      load_tile<7>(values + kMatrixPanel, stride);
      add_bf16<kSums, kProbabilities, 3>();
      add_bf16<kSums + 1, kProbabilities, 7>();
    }
    store_tile<kSums>(sums + column, stride);
    store_tile<kSums + 1>(sums + column + kMatrixPanel, stride);
  }
}

/// The part of a tile of positions that is seen, and the memory for the work on up to 16 rows.
struct AttentionWork {
  std::int64_t first_tile = 0;  ///< keys of the tiles [first_tile, end_tile)
  std::int64_t end_tile = 0;
  std::int64_t first_step = 0;  ///< values of the steps [first_step, first_step + value_steps)
  std::int64_t value_steps = 0;
  StoredTile keys[kPositionTiles];
  alignas(kMatrixLine) float scores[kPositionTiles * kTileFloats];
  alignas(kMatrixLine) float pairs[kPositionTiles * kTileFloats / 2] = {};  // of positions without scores 0
  alignas(kMatrixLine) float probabilities[kPositionTiles * kTileFloats / 2];
};

/// Turns the scores of up to 16 rows into probabilities for the product with values, and scales the old sums.
inline void softmax_rows(const MatrixAttentionArgs& args, AttentionWork& work, std::int64_t first_row,
                         std::int64_t rows, RowPrefetcher& prefetcher) {
  float factors[kMatrixTileRows];
  for (std::int64_t lane = 0; lane < rows; lane += kLanes) {
    softmax_lanes(args,
                  {.first_row = first_row + lane,
                   .rows = std::min<std::int64_t>(rows - lane, kLanes),
                   .scores = work.scores + lane,
                   .pairs = work.pairs + lane,
                   .first_position = work.first_tile * kMatrixTileRows,
                   .end_position = work.end_tile * kMatrixTileRows},
                  prefetcher, factors + lane);
  }
  for (std::int64_t r = 0; r < rows; ++r) {
    scale_sums(args.sums + (first_row + r) * args.width, args.width, factors[r]);
  }
  for (std::int64_t step = 0; step < work.value_steps; ++step) {
    const float* pairs = work.pairs + (work.first_step + step) * kTileFloats;
    const std::byte* pair_rows[kMatrixTileRows];
    for (std::int64_t i = 0; i < kMatrixTileRows; ++i) {
      pair_rows[i] = reinterpret_cast<const std::byte*>(pairs + i * kMatrixTileRows);
    }
    transpose_pairs(pair_rows, reinterpret_cast<std::byte*>(work.probabilities + step * kTileFloats));
  }
}

void matrix_attend(const MatrixAttentionArgs& args) {
  AttentionWork work;
  work.first_tile = args.first / kMatrixTileRows;
  work.end_tile = (args.end + kMatrixTileRows - 1) / kMatrixTileRows;
  work.first_step = args.first / kMatrixStep;
  work.value_steps = (args.end + kMatrixStep - 1) / kMatrixStep - work.first_step;
  for (std::int64_t tile = work.first_tile; tile < work.end_tile; ++tile) work.keys[tile] = keys_of(args, tile);
  const std::int64_t first_pair = work.first_step * kMatrixStep / 2;
  const std::int64_t num_pairs = work.value_steps * kMatrixStep / 2;
  const std::int64_t num_softmax_steps = (work.end_tile - work.first_tile) * kTileFloats / kLanes;
  RowPrefetcher prefetcher(args.next, 2 * num_pairs + num_softmax_steps);
  for (std::int64_t pair = first_pair; pair < first_pair + num_pairs; ++pair) {
    prefetcher.advance(2);
    pair_values(args, pair);
  }

  const std::int64_t steps = (args.head_dim + kMatrixStep - 1) / kMatrixStep;
  const float* const values = args.value_pairs + first_pair * args.width;
  shape_attention_tiles((args.rows - 1) % kMatrixTileRows + 1);
  for (std::int64_t row = 0; row < args.rows; row += kMatrixTileRows) {
    const std::int64_t rows = std::min(args.rows - row, kMatrixTileRows);
    const float* const queries = args.queries + row * steps * kMatrixStep / 2;
    std::int64_t tile = work.first_tile;
    for (; tile + 2 <= work.end_tile; tile += 2) {
      score_tiles<2>(work.keys + tile, queries, steps, work.scores + tile * kTileFloats);
    }
    if (tile < work.end_tile) score_tiles<1>(work.keys + tile, queries, steps, work.scores + tile * kTileFloats);
    softmax_rows(args, work, row, rows, prefetcher);
    float* const sums = args.sums + row * args.width;
    if (rows == kMatrixTileRows) {
      add_value_tiles<true>(work.probabilities, values, work.value_steps, args.width, sums);
    } else {
      add_value_tiles<false>(work.probabilities, values, work.value_steps, args.width, sums);
    }
  }
  release_tiles();
}

}  // namespace
}  // namespace pagoda::kernels::PAGODA_SIMD

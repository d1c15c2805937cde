// The online softmax of attention and its sums of values. Included once per instruction set, after scores.inl.hpp;
// PAGODA_SIMD names the namespace.

#include <cstdint>

#include "kernels/cpu/kernel_table.hpp"
#include "kernels/cpu/simd/dots.inl.hpp"
#include "kernels/cpu/simd/prefetch.hpp"

namespace pagoda::kernels::PAGODA_SIMD {
namespace {

inline void scale_in_place(float* x, float factor, std::int64_t width) {
  const Vec factors = set1(factor);
  for (std::int64_t i = 0; i < width; i += kLanes) store(x + i, load(x + i) * factors);
}

void softmax_tile(const SoftmaxTileArgs& args) {
  // A distance is key position - query position; a row sees the distances in (nearest_unseen, 0].
  const auto first_distance = static_cast<float>(args.first_position - args.position);
  const auto nearest_unseen = static_cast<float>(args.first_seen - 1 - args.position);
  const bool sees_all = first_distance <= -static_cast<float>(kScoreTile - 1) && first_distance > nearest_unseen;
  RowPrefetcher prefetcher(args.next, args.rows);
  for (std::int64_t r = 0; r < args.rows; ++r) {
    prefetcher.advance(1);
    float* scores = args.scores + r * kScoreTile;
    Vec x[kScoreVectors];
#pragma GCC unroll 4
    for (int v = 0; v < kScoreVectors; ++v) {
      const Vec distance = set1(first_distance + static_cast<float>(v * kLanes)) + iota();
      x[v] = load(scores + v * kLanes);
      if (args.key_scales != nullptr) x[v] = x[v] * load(args.key_scales + v * kLanes);
      x[v] = x[v] * set1(args.scale);
      if (args.softcap > 0.0F) x[v] = set1(args.softcap) * tanh(x[v] / set1(args.softcap));
      if (args.slopes != nullptr) x[v] = fma(set1(args.slopes[r]), distance, x[v]);
      if (!sees_all) {
        x[v] = select_less(zero(), distance, set1(-kInfinity), x[v]);
        x[v] = select_less(set1(nearest_unseen), distance, x[v], set1(-kInfinity));
      }
    }
    const float tile_highest = highest(max(max(x[0], x[1]), max(x[2], x[3])));
    const float before = args.highest[r];
    const float after = before > tile_highest ? before : tile_highest;
    if (after == -kInfinity) {  // the row has seen no position so far
#pragma GCC unroll 4
      for (int v = 0; v < kScoreVectors; ++v) store(scores + v * kLanes, zero());
      continue;
    }
#pragma GCC unroll 4
    for (int v = 0; v < kScoreVectors; ++v) {
      x[v] = exp(x[v] - set1(after));
      store(scores + v * kLanes, args.value_scales == nullptr ? x[v] : x[v] * load(args.value_scales + v * kLanes));
    }
    const float tile_total = sum((x[0] + x[1]) + (x[2] + x[3]));
    if (before == after) {
      args.total[r] += tile_total;
      continue;
    }
    float correction[kLanes];
    store(correction, exp(set1(before - after)));
    args.total[r] = args.total[r] * correction[0] + tile_total;
    args.highest[r] = after;
    scale_in_place(args.sums + r * args.width, correction[0], args.width);
  }
}

/// Returns the number of vectors of a value that are loaded at once.
constexpr int vectors_at_once(DType dtype, int vectors) {
  return (dtype == DType::fp8_e4m3 || is_dotted(dtype)) && vectors % 2 == 0 ? 2 : 1;
}

/// Loads some columns of a value, or (dotted) of a pair of values.
template <DType dtype, int count>
inline void load_values(const void* const* values, std::int64_t at_bytes, Vec (&x)[count]) {
  const char* value = static_cast<const char*>(values[0]) + at_bytes;
  if constexpr (is_dotted(dtype)) {
    const char* second = static_cast<const char*>(values[1]) + at_bytes;
    if constexpr (count == 2) {
      load_pairs_bf16(value, second, x[0], x[1]);
    } else {
      x[0] = load_pairs_bf16(value, second);
    }
  } else if constexpr (count == 2) {
    load_pair_fp8(value, x[0], x[1]);
  } else {
    x[0] = load_as<dtype>(value);
  }
}

/// Loads some columns of a row's sums, in the order of load_values.
template <DType dtype, int vectors>
inline void load_sums(const float* p, Vec (&sums)[vectors]) {
  if constexpr (is_dotted(dtype) && vectors > 1) {
#pragma GCC unroll 4
    for (int v = 0; v < vectors; v += 2) load_fours(p + v * kLanes, sums[v], sums[v + 1]);
  } else {
#pragma GCC unroll 8
    for (int v = 0; v < vectors; ++v) sums[v] = load(p + v * kLanes);
  }
}

template <DType dtype, int vectors>
inline void store_sums(float* p, const Vec (&sums)[vectors]) {
  if constexpr (is_dotted(dtype) && vectors > 1) {
#pragma GCC unroll 4
    for (int v = 0; v < vectors; v += 2) store_fours(p + v * kLanes, sums[v], sums[v + 1]);
  } else {
#pragma GCC unroll 8
    for (int v = 0; v < vectors; ++v) store(p + v * kLanes, sums[v]);
  }
}

template <DType dtype, int rows, int vectors>
inline void add_values(const ValuesStreamArgs& args, std::int64_t column) {
  constexpr auto kSize = static_cast<std::int64_t>(size_of(dtype));
  constexpr int kAtOnce = vectors_at_once(dtype, vectors);
  // Each call prefetches its share of the rows.
  RowPrefetcher prefetcher(share_of(args.next, column, column + vectors * kLanes, args.columns), args.count);
  Vec sums[rows][vectors];
#pragma GCC unroll 8
  for (int r = 0; r < rows; ++r) load_sums<dtype>(args.sums + r * args.width + column, sums[r]);
  constexpr std::int64_t kPlaces = is_dotted(dtype) ? 2 : 1;
  for (std::int64_t j = 0; j < args.count; j += kPlaces) {
    prefetcher.advance(kPlaces);
    Vec p[rows];
#pragma GCC unroll 8
    for (int r = 0; r < rows; ++r) p[r] = set1(args.p[r * args.p_pitch + j / kPlaces]);
#pragma GCC unroll 8
    for (int v = 0; v < vectors; v += kAtOnce) {
      Vec x[kAtOnce];
      load_values<dtype>(args.values + j, (column + v * kLanes) * kSize, x);
#pragma GCC unroll 2
      for (int i = 0; i < kAtOnce; ++i) {
#pragma GCC unroll 8
        for (int r = 0; r < rows; ++r) {
          sums[r][v + i] = multiply_add<is_dotted(dtype)>(p[r], x[i], sums[r][v + i]);
        }
      }
    }
  }
#pragma GCC unroll 8
  for (int r = 0; r < rows; ++r) store_sums<dtype>(args.sums + r * args.width + column, sums[r]);
}

/// Returns the widest piece of a value, in vectors, whose sums for all rows fit registers.
constexpr int value_vectors(int rows) {
  int vectors = 8;
  while (vectors > 1 && rows * vectors > kMaxSums) vectors /= 2;
  return vectors;
}

template <DType dtype, int rows, int vectors>
void values_stream_columns(const ValuesStreamArgs& args) {
  std::int64_t column = 0;
  for (; column + vectors * kLanes <= args.columns; column += vectors * kLanes) {
    add_values<dtype, rows, vectors>(args, column);
  }
  for (; column < args.columns; column += kLanes) {
    add_values<dtype, rows, 1>(args, column);
  }
}

/// Processes wide pieces for as many rows at a time as fit registers: the first pass reads the values in the order of
/// memory, later passes read them from the first-level cache.
template <DType dtype, int rows, int vectors>
void values_stream_rows(const ValuesStreamArgs& args) {
  constexpr int kPasses = (rows * vectors + kMaxSums - 1) / kMaxSums;
  constexpr int kAtOnce = (rows + kPasses - 1) / kPasses;
  static_assert(kAtOnce * vectors <= kMaxSums);
  const auto some_rows = [&](int first, int count) {
    ValuesStreamArgs some = args;
    some.p = args.p + first * args.p_pitch;
    some.sums = args.sums + first * args.width;
    some.next = share_of(args.next, first, first + count, rows);
    return some;
  };
  int first = 0;
  for (; first + kAtOnce <= rows; first += kAtOnce) {
    values_stream_columns<dtype, kAtOnce, vectors>(some_rows(first, kAtOnce));
  }
  constexpr int kRest = rows % kAtOnce;
  if constexpr (kRest > 0) values_stream_columns<dtype, kRest, vectors>(some_rows(first, kRest));
}

template <DType dtype, int rows>
void values_stream_of(const ValuesStreamArgs& args) {
  if constexpr (is_dotted(dtype)) {
    float pairs[rows][kScoreTile / 2];
    for (int r = 0; r < rows; ++r) {
      const float* p = args.p + r * args.p_pitch;
      for (std::int64_t j = 0; j < args.count; j += 2 * kLanes) {
        store(pairs[r] + j / 2, bf16_pairs(load_some(p + j, static_cast<int>(args.count - j)),
                                           load_some(p + j + kLanes, static_cast<int>(args.count - j) - kLanes)));
      }
    }
    ValuesStreamArgs paired = args;
    paired.p = pairs[0];
    paired.p_pitch = kScoreTile / 2;
    constexpr int kWide = 8;
    if (args.columns >= kWide * kLanes) return values_stream_rows<dtype, rows, kWide>(paired);
    values_stream_rows<dtype, rows, kWide / 2>(paired);
  } else {
    values_stream_columns<dtype, rows, value_vectors(rows)>(args);
  }
}

template <DType dtype, int rows>
void values_stream_up_to(const ValuesStreamArgs& args) {
  if (args.rows == rows) return values_stream_of<dtype, rows>(args);
  if constexpr (rows > 1) values_stream_up_to<dtype, rows - 1>(args);
}

void values_stream(const ValuesStreamArgs& args) {
  switch (args.dtype) {
    case DType::f32:
      return values_stream_up_to<DType::f32, kStreamRows>(args);
    case DType::f16:
      return values_stream_up_to<DType::f16, kStreamRows>(args);
    case DType::bf16:
      return values_stream_up_to<DType::bf16, kStreamRows>(args);
    case DType::fp8_e4m3:
      return values_stream_up_to<DType::fp8_e4m3, kStreamRows>(args);
    case DType::int8:
      return values_stream_up_to<DType::int8, kStreamRows>(args);
  }
}

void merge_sums(const AttentionSums& into, const AttentionSums& later, std::int64_t width) {
  if (*later.highest == -kInfinity) return;
  const float after = *into.highest > *later.highest ? *into.highest : *later.highest;
  float factors[kLanes];
  store(factors, exp(set1(*into.highest - after)));
  const float into_factor = factors[0];
  store(factors, exp(set1(*later.highest - after)));
  const float later_factor = factors[0];
  *into.highest = after;
  *into.total = *into.total * into_factor + *later.total * later_factor;
  for (std::int64_t i = 0; i < width; i += kLanes) {
    const Vec earlier = load(into.sums + i) * set1(into_factor);
    store(into.sums + i, earlier + load(later.sums + i) * set1(later_factor));
  }
}

}  // namespace
}  // namespace pagoda::kernels::PAGODA_SIMD

#pragma once

/// Loads panels of quantised weights as fragments for integer tensor cores.
///
/// Lane l of a warp has group g = l / 4 and place t = l % 4, as in kernels/cuda/ptx.cuh. Rows and columns of a product
/// may be assigned in any order, so they are assigned in the order in which they lie in memory: row g of a fragment is
/// row 2g of the panel and row g + 8 is row 2g + 1; lane t's columns of a step are 8t .. 8t+7.

#include <cstdint>

#include "kernels/cuda/device_functions.cuh"
#include "kernels/cuda/element.cuh"
#include "kernels/cuda/ptx.cuh"
#include "kernels/cuda/quantized_words.cuh"
#include "kernels/quantized.hpp"

namespace pagoda::kernels::cuda {

constexpr int kStepColumns = 32;  ///< columns of one tensor core instruction

/// Interval at which the integer dot products are converted to floats and added to the sums (a flush). It depends on
/// the group size; only the most important sizes have their own kernels.
enum class Grouping {
  by_fours,   ///< groups of 128 columns: after every four steps
  by_steps,   ///< groups of a multiple of 32 columns: after every step
  by_halves,  ///< groups of a multiple of 16 columns: after every half step
};

constexpr Grouping grouping_of(std::int64_t group_size) {
  return group_size == 4 * kStepColumns   ? Grouping::by_fours
         : group_size % kStepColumns == 0 ? Grouping::by_steps
                                          : Grouping::by_halves;
}

/// The groups of columns of a matrix.
struct Groups {
  int size = 0;
  int count = 0;
  /// 2^31 / (pieces of a group), rounded up; a piece is a step or half a step.
  std::uint32_t pieces_inverse = 0;
};

constexpr Groups groups_of(std::int64_t group_size, std::int64_t count) {
  const std::int64_t piece = grouping_of(group_size) == Grouping::by_halves ? kStepColumns / 2 : kStepColumns;
  const std::int64_t pieces = group_size / piece;
  return {static_cast<int>(group_size), static_cast<int>(count),
          static_cast<std::uint32_t>(((std::int64_t{1} << 31) + pieces - 1) / pieces)};
}

/// A batch of columns that are loaded together: how it is divided into steps and flushes, and which values its groups
/// have.
template <Coding coding, Grouping kGrouping, int kNumSteps, bool kAsymmetric, bool kTwoLevels>
struct BatchShape {
  static constexpr Coding kCoding = coding;
  static constexpr int kSteps = kNumSteps;
  static constexpr bool kHasMins = kAsymmetric;
  static constexpr bool kTwoLevel = kTwoLevels;
  static constexpr int kColumns = kSteps * kStepColumns;
  static constexpr int kLoads = kBitsOf<coding> == 4 ? 1 : 2;  ///< loads of each step
  static constexpr int kPieces = kGrouping == Grouping::by_halves ? 2 : 1;
  static constexpr int kFlushes = kGrouping == Grouping::by_fours ? kSteps / 4 : kSteps * kPieces;
  static constexpr int kScales = kTwoLevel ? 1 : kFlushes;
  static_assert(kGrouping != Grouping::by_fours || kSteps % 4 == 0);
  static_assert(!kTwoLevel || kTwoLevelColumns % kColumns == 0, "one scale is of the whole batch");

  /// Returns the group of flush f in the batch that begins at column `first`.
  __device__ static int group_of(int first, int f, Groups groups) {
    if constexpr (kGrouping == Grouping::by_fours) return first / (4 * kStepColumns) + f;
    const int piece = first / (kStepColumns / kPieces) + f;
    return static_cast<int>(__umulhi(2U * static_cast<unsigned>(piece), groups.pieces_inverse));
  }

  /// Returns whether the group of flush f, which may have several flushes, begins at that flush.
  __device__ static bool begins_group(int first, int f, Groups groups) {
    if constexpr (kGrouping == Grouping::by_fours) return true;
    return group_of(first, f, groups) * groups.size == first + f * (kStepColumns / kPieces);
  }
};

/// kCount words; empty if kCount is 0.
template <int kCount>
struct Words {
  std::uint32_t words[kCount];
};
template <>
struct Words<0> {};

/// A panel's weights of one batch, as a lane holds them.
template <class Shape>
struct PanelBatch {
  uint2 words[Shape::kSteps][Shape::kLoads];
  std::uint32_t scales[Shape::kScales];  ///< two float16, for rows 2g and 2g + 1
  Words<Shape::kHasMins ? Shape::kScales : 0> mins;
  Words<Shape::kTwoLevel ? Shape::kFlushes : 0> factors;  ///< two signed bytes, for rows 2g and 2g + 1
  Words<Shape::kTwoLevel && Shape::kHasMins ? Shape::kFlushes : 0> min_factors;
};

/// The memory at which a panel begins.
struct PanelMemory {
  const std::uint8_t* data = nullptr;
  const __half* scales = nullptr;
  const __half* mins = nullptr;          ///< null unless the shape has minimums
  const std::int8_t* factors = nullptr;  ///< null unless the shape has two-level scales
};

/// Returns the index of the word of a row that holds the lowest 4 bits of the eight columns from `column` on (load 0)
/// or their higher bits (load 1). For integers of 8 bits, load 0 is the word of the first four columns and load 1 the
/// word of the next four.
template <Coding coding>
__device__ __forceinline__ int word_of_columns(int column, int load) {
  if constexpr (kHighBits<coding> == 0) return column / kBlockColumns<coding> + load;
  const int pair = column / 8;
  const int block = pair / kPairsOf<coding> * kBlockWords<coding>;
  return block + (load == 0 ? pair % kPairsOf<coding> : kBlockWords<coding> - 1);
}

/// Loads the batch that begins at column `first`. After the last column all scales and minimums are 0.
template <class Shape>
__device__ __forceinline__ PanelBatch<Shape> load_panel(const PanelMemory& panel, int first, int padded_columns,
                                                        Groups groups, int lane) {
  const int g = lane / 4;
  const int t = lane % 4;
  PanelBatch<Shape> batch;
#pragma unroll
  for (int s = 0; s < Shape::kSteps; ++s) {
    const int column = first + s * kStepColumns + 8 * t;
#pragma unroll
    for (int i = 0; i < Shape::kLoads; ++i) {
      const int row_word = word_of_columns<Shape::kCoding>(column, i);
      const std::int64_t word = static_cast<std::int64_t>(row_word) * kPanelRows + 2 * g;
      batch.words[s][i] = load_once(reinterpret_cast<const uint2*>(panel.data + word * 4), column < padded_columns);
    }
  }
  if constexpr (Shape::kTwoLevel) {
    const int place = first / static_cast<int>(kTwoLevelColumns);
    const std::int64_t at = static_cast<std::int64_t>(place) * kPanelRows + 2 * g;
    const bool valid = first < padded_columns;
    batch.scales[0] = load_word(reinterpret_cast<const std::uint32_t*>(panel.scales + at), valid);
    if constexpr (Shape::kHasMins) {
      batch.mins.words[0] = load_word(reinterpret_cast<const std::uint32_t*>(panel.mins + at), valid);
    }
  }
#pragma unroll
  for (int f = 0; f < Shape::kFlushes; ++f) {
    const int group = Shape::group_of(first, f, groups);
    const bool valid = group < groups.count;
    if constexpr (Shape::kTwoLevel) {
      constexpr int kKinds = Shape::kHasMins ? 2 : 1;
      const std::int8_t* factors = panel.factors + static_cast<std::int64_t>(group) * (kKinds * kPanelRows) + 2 * g;
      batch.factors.words[f] = load_half_word(reinterpret_cast<const std::uint16_t*>(factors), valid);
      if constexpr (Shape::kHasMins) {
        const auto* of_min = reinterpret_cast<const std::uint16_t*>(factors + kPanelRows);
        batch.min_factors.words[f] = load_half_word(of_min, valid);
      }
    } else {
      const std::int64_t at = static_cast<std::int64_t>(group) * kPanelRows + 2 * g;
      batch.scales[f] = load_word(reinterpret_cast<const std::uint32_t*>(panel.scales + at), valid);
      if constexpr (Shape::kHasMins) {
        batch.mins.words[f] = load_word(reinterpret_cast<const std::uint32_t*>(panel.mins + at), valid);
      }
    }
  }
  return batch;
}

/// Returns the scales of rows 2g and 2g + 1 for flush f of a batch.
template <class Shape>
__device__ __forceinline__ float2 scales_of(const PanelBatch<Shape>& batch, int f) {
  if constexpr (Shape::kTwoLevel) {
    const float2 scales = two_floats<__half>(batch.scales[0]);
    const float2 factors = two_signed_bytes(batch.factors.words[f]);
    return {scales.x * factors.x, scales.y * factors.y};
  } else {
    return two_floats<__half>(batch.scales[f]);
  }
}

/// Returns the minimums of rows 2g and 2g + 1 for flush f of a batch.
template <class Shape>
__device__ __forceinline__ float2 mins_of(const PanelBatch<Shape>& batch, int f) {
  if constexpr (Shape::kTwoLevel) {
    const float2 mins = two_floats<__half>(batch.mins.words[0]);
    const float2 factors = two_signed_bytes(batch.min_factors.words[f]);
    return {mins.x * factors.x, mins.y * factors.y};
  } else {
    return two_floats<__half>(batch.mins.words[f]);
  }
}

/// The middle of the stored integers, which is the zero_point of symmetric formats; 0 for codebook indices, which are
/// replaced by their values.
template <Coding coding>
constexpr float kMiddle = coding == Coding::codebook ? 0.0F : static_cast<float>(1 << (kBitsOf<coding> - 1));

/// The factor of the integers of a fragment: they are (q - kMiddle) * kFragmentFactor.
template <Coding coding>
constexpr float kFragmentFactor = coding == Coding::codebook ? 1.0F : static_cast<float>(1 << (8 - kBitsOf<coding>));

/// Returns the fragment of a step: signed bytes (q - kMiddle) * kFragmentFactor; for codebook indices, their values.
template <Coding coding, int kLoads>
__device__ __forceinline__ void fragment_of(const uint2 (&words)[kLoads], int t, const CodebookWords& table,
                                            std::uint32_t (&a)[4]) {
  constexpr std::uint32_t kSigns = 0x80808080U;  // converts unsigned bytes to signed ones by subtracting 128
  const uint2 first = words[0];
  if constexpr (coding == Coding::int8) {
    const uint2 second = words[kLoads - 1];
    a[0] = first.x ^ kSigns;
    a[1] = first.y ^ kSigns;
    a[2] = second.x ^ kSigns;
    a[3] = second.y ^ kSigns;
  } else if constexpr (coding == Coding::int4) {
    // Four bits in the upper half of a byte have 16 times their value.
    constexpr std::uint32_t kUpperHalves = 0xF0F0F0F0U;
    a[0] = (first.x << 4 & kUpperHalves) ^ kSigns;
    a[1] = (first.y << 4 & kUpperHalves) ^ kSigns;
    a[2] = (first.x & kUpperHalves) ^ kSigns;
    a[3] = (first.y & kUpperHalves) ^ kSigns;
  } else if constexpr (coding == Coding::codebook) {
    const uint2 of_row = values_at(first.x, table);
    const uint2 of_next_row = values_at(first.y, table);
    a[0] = of_row.x;
    a[1] = of_next_row.x;
    a[2] = of_row.y;
    a[3] = of_next_row.y;
  } else {
    // The low 4 bits are moved up too, below the high bits from the block's last word.
    constexpr int kHigh = kHighBits<coding>;
    constexpr int kUp = 8 - kBitsOf<coding>;
    constexpr std::uint32_t kLow = 0x0F0F0F0FU << kUp;
    constexpr std::uint32_t kAbove = ~(0xFFU >> kHigh) & 0xFFU;
    constexpr std::uint32_t kAbove4 = kAbove * 0x01010101U;
    const int shift = 2 * kHigh * (t % kPairsOf<coding>);
    const uint2 last = {words[kLoads - 1].x >> shift, words[kLoads - 1].y >> shift};
    a[0] = ((first.x << kUp & kLow) | (last.x << (8 - kHigh) & kAbove4)) ^ kSigns;
    a[1] = ((first.y << kUp & kLow) | (last.y << (8 - kHigh) & kAbove4)) ^ kSigns;
    a[2] = ((first.x >> (4 - kUp) & kLow) | (last.x << (8 - 2 * kHigh) & kAbove4)) ^ kSigns;
    a[3] = ((first.y >> (4 - kUp) & kLow) | (last.y << (8 - 2 * kHigh) & kAbove4)) ^ kSigns;
  }
}

/// Adds one batch: sums[n][..] += the products of a panel with kTiles tiles of 8 tokens, each group of columns times
/// its scales; with minimums, also the weight of kMiddle times the sums of x. `load_x(n, s)` returns the fragment of
/// tile n and step s: integers 8t .. 8t+7 of token g (any integers after the last column). `load_x_scales(n, group)`
/// returns the scales of tokens 2t and 2t+1 (any finite numbers after the last group), and `load_x_sums(n, group)` the
/// sums of x of these tokens.
template <class Shape, int kTiles, class LoadX, class LoadXScales, class LoadXSums>
__device__ __forceinline__ void add_batch(const PanelBatch<Shape>& batch, int first, Groups groups,
                                          const CodebookWords& table, int lane, const LoadX& load_x,
                                          const LoadXScales& load_x_scales, const LoadXSums& load_x_sums,
                                          float (&sums)[kTiles][4]) {
  constexpr int kSteps = Shape::kSteps;
  constexpr int kPiecesOfFlush = kSteps * Shape::kPieces / Shape::kFlushes;
  constexpr float kMiddleOf = kMiddle<Shape::kCoding>;
  const int t = lane % 4;
  std::int32_t dots[kTiles][4] = {};
#pragma unroll
  for (int s = 0; s < kSteps; ++s) {
    std::uint32_t a[4];
    fragment_of<Shape::kCoding>(batch.words[s], t, table, a);
    uint2 x[kTiles];
#pragma unroll
    for (int n = 0; n < kTiles; ++n) x[n] = load_x(n, s);
#pragma unroll
    for (int piece = 0; piece < Shape::kPieces; ++piece) {
      const bool in_piece = Shape::kPieces == 1 || t / 2 == piece;
#pragma unroll
      for (int n = 0; n < kTiles; ++n) {
        const std::uint32_t b[2] = {in_piece ? x[n].x : 0, in_piece ? x[n].y : 0};
        mma_m16n8k32_s8(dots[n], a, b, dots[n]);
      }
      const int pieces = s * Shape::kPieces + piece + 1;
      if (pieces % kPiecesOfFlush != 0) continue;
      const int flush = pieces / kPiecesOfFlush - 1;
      const int group = min(Shape::group_of(first, flush, groups), groups.count - 1);
      const float2 w_scales = scales_of(batch, flush);
#pragma unroll
      for (int n = 0; n < kTiles; ++n) {
        const float2 x_scales = load_x_scales(n, group);
        sums[n][0] = fmaf(__int2float_rn(dots[n][0]), w_scales.x * x_scales.x, sums[n][0]);
        sums[n][1] = fmaf(__int2float_rn(dots[n][1]), w_scales.x * x_scales.y, sums[n][1]);
        sums[n][2] = fmaf(__int2float_rn(dots[n][2]), w_scales.y * x_scales.x, sums[n][2]);
        sums[n][3] = fmaf(__int2float_rn(dots[n][3]), w_scales.y * x_scales.y, sums[n][3]);
        dots[n][0] = dots[n][1] = dots[n][2] = dots[n][3] = 0;
      }
      if constexpr (Shape::kHasMins) {
        if (!Shape::begins_group(first, flush, groups)) continue;
        const float2 mins = mins_of(batch, flush);
        const float2 middles{fmaf(w_scales.x, kMiddleOf, mins.x), fmaf(w_scales.y, kMiddleOf, mins.y)};
#pragma unroll
        for (int n = 0; n < kTiles; ++n) {
          const float2 x_sums = load_x_sums(n, group);
          sums[n][0] = fmaf(middles.x, x_sums.x, sums[n][0]);
          sums[n][1] = fmaf(middles.x, x_sums.y, sums[n][1]);
          sums[n][2] = fmaf(middles.y, x_sums.x, sums[n][2]);
          sums[n][3] = fmaf(middles.y, x_sums.y, sums[n][3]);
        }
      }
    }
  }
}

}  // namespace pagoda::kernels::cuda

#pragma once

/// Panels of quantised weights as fragments of integer tensor cores.
///
/// Lane l of a warp has group g = l / 4 and place t = l % 4, as kernels/cuda/ptx.cuh says. Rows and columns of a
/// product may be dealt in any order, so they are dealt as they lie in memory: row g of a fragment is row 2g of the
/// panel and row g + 8 is row 2g + 1; lane t's columns of a step are 8t .. 8t+7.

#include <cstdint>

#include "kernels/cuda/device_functions.cuh"
#include "kernels/cuda/element.cuh"
#include "kernels/cuda/ptx.cuh"
#include "kernels/quantized.hpp"

namespace pagoda::kernels::cuda {

constexpr int kStepColumns = 32;  ///< of one tensor core instruction

/// How often the dots of integers become floats: as the group size is, but for few sizes that matter most.
enum class Grouping {
  by_fours,   ///< groups of 128 columns: every four steps
  by_steps,   ///< groups of a multiple of 32 columns: every step
  by_halves,  ///< of a multiple of 16 columns: every half step
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
  /// 2^31 / (pieces of a group), rounded up, where a piece is a step or half a step.
  std::uint32_t pieces_inverse = 0;
};

constexpr Groups groups_of(std::int64_t group_size, std::int64_t count) {
  const std::int64_t piece = grouping_of(group_size) == Grouping::by_halves ? kStepColumns / 2 : kStepColumns;
  const std::int64_t pieces = group_size / piece;
  return {static_cast<int>(group_size), static_cast<int>(count),
          static_cast<std::uint32_t>(((std::int64_t{1} << 31) + pieces - 1) / pieces)};
}

/// Columns that are loaded together: how they are cut in steps and flushes, and whether groups have minimums.
template <int kBits, Grouping kGrouping, int kSteps, bool kAsymmetric>
struct BatchShape {
  static constexpr bool kHasMins = kAsymmetric;
  static constexpr int kColumns = kSteps * kStepColumns;
  static constexpr int kLoads = kBits == 8 ? 2 : 1;  ///< of each step
  static constexpr int kPieces = kGrouping == Grouping::by_halves ? 2 : 1;
  static constexpr int kFlushes = kGrouping == Grouping::by_fours ? kSteps / 4 : kSteps * kPieces;
  static_assert(kGrouping != Grouping::by_fours || kSteps % 4 == 0);

  /// The group of flush f of the batch that begins at column `first`.
  __device__ static int group_of(int first, int f, Groups groups) {
    if constexpr (kGrouping == Grouping::by_fours) return first / (4 * kStepColumns) + f;
    const int piece = first / (kStepColumns / kPieces) + f;
    return static_cast<int>(__umulhi(2U * static_cast<unsigned>(piece), groups.pieces_inverse));
  }

  /// Whether that group begins there, which may have several flushes.
  __device__ static bool begins_group(int first, int f, Groups groups) {
    if constexpr (kGrouping == Grouping::by_fours) return true;
    return group_of(first, f, groups) * groups.size == first + f * (kStepColumns / kPieces);
  }
};

/// Two float16 for each flush, or nothing.
template <int kFlushes>
struct FlushWords {
  std::uint32_t words[kFlushes];
};
template <>
struct FlushWords<0> {};

/// A panel's weights of one batch, as a lane holds them.
template <class Shape, int kSteps>
struct PanelBatch {
  uint2 words[kSteps][Shape::kLoads];
  std::uint32_t scales[Shape::kFlushes];  ///< two float16: of rows 2g and 2g + 1
  FlushWords<Shape::kHasMins ? Shape::kFlushes : 0> mins;
};

/// Where a panel begins.
struct PanelMemory {
  const std::uint8_t* data = nullptr;
  const __half* scales = nullptr;
  const __half* mins = nullptr;  ///< when the shape has minimums
};

/// The batch that begins at column `first`. Behind the last column all scales and minimums are 0.
template <int kBits, class Shape, int kSteps>
__device__ __forceinline__ PanelBatch<Shape, kSteps> load_panel(const PanelMemory& panel, int first, int padded_columns,
                                                                Groups groups, int lane) {
  constexpr int kPerWord = 32 / kBits;
  constexpr int kRows = static_cast<int>(kQuantizedPanel);
  const int g = lane / 4;
  const int t = lane % 4;
  PanelBatch<Shape, kSteps> batch;
#pragma unroll
  for (int s = 0; s < kSteps; ++s) {
    const int column = first + s * kStepColumns + 8 * t;
#pragma unroll
    for (int i = 0; i < Shape::kLoads; ++i) {
      const std::int64_t word = static_cast<std::int64_t>(column / kPerWord + i) * kRows + 2 * g;
      batch.words[s][i] = load_once(reinterpret_cast<const uint2*>(panel.data + word * 4), column < padded_columns);
    }
  }
#pragma unroll
  for (int f = 0; f < Shape::kFlushes; ++f) {
    const int group = Shape::group_of(first, f, groups);
    const std::int64_t at = static_cast<std::int64_t>(group) * kRows + 2 * g;
    const bool valid = group < groups.count;
    batch.scales[f] = load_word(reinterpret_cast<const std::uint32_t*>(panel.scales + at), valid);
    if constexpr (Shape::kHasMins) {
      batch.mins.words[f] = load_word(reinterpret_cast<const std::uint32_t*>(panel.mins + at), valid);
    }
  }
  return batch;
}

/// The middle of the stored integers: what symmetric formats have for zero_point.
template <int kBits>
constexpr float kMiddle = kBits == 8 ? 128.0F : 8.0F;

/// What the integers of a fragment are multiplied by on top of q - kMiddle.
template <int kBits>
constexpr float kFragmentFactor = kBits == 8 ? 1.0F : 16.0F;

/// The fragment of a step: signed bytes (q - kMiddle) * kFragmentFactor.
template <int kBits, int kLoads>
__device__ __forceinline__ void fragment_of(const uint2 (&words)[kLoads], std::uint32_t (&a)[4]) {
  constexpr std::uint32_t kSigns = 0x80808080U;  // unsigned to signed: minus 128
  const uint2 first = words[0];
  if constexpr (kBits == 8) {
    const uint2 second = words[kLoads - 1];
    a[0] = first.x ^ kSigns;
    a[1] = first.y ^ kSigns;
    a[2] = second.x ^ kSigns;
    a[3] = second.y ^ kSigns;
  } else {
    // Half a byte moved to the upper half of a byte is 16 times as much.
    constexpr std::uint32_t kUpperHalves = 0xF0F0F0F0U;
    a[0] = (first.x << 4 & kUpperHalves) ^ kSigns;
    a[1] = (first.y << 4 & kUpperHalves) ^ kSigns;
    a[2] = (first.x & kUpperHalves) ^ kSigns;
    a[3] = (first.y & kUpperHalves) ^ kSigns;
  }
}

/// Adds one batch: sums[n][..] += the products of a panel with kTiles tiles of 8 tokens, each group of columns times
/// its scales, and with minimums plus the weight of kMiddle times the sums of x. `load_x(n, s)` is the fragment of tile
/// n and step s: integers 8t .. 8t+7 of token g (any integers behind the last column). `load_x_scales(n, group)` is the
/// pair of scales of tokens 2t and 2t+1 (any finite ones behind the last group), `load_x_sums` that of sums.
template <int kBits, class Shape, int kSteps, int kTiles, class LoadX, class LoadXScales, class LoadXSums>
__device__ __forceinline__ void add_batch(const PanelBatch<Shape, kSteps>& batch, int first, Groups groups, int lane,
                                          const LoadX& load_x, const LoadXScales& load_x_scales,
                                          const LoadXSums& load_x_sums, float (&sums)[kTiles][4]) {
  constexpr int kPiecesOfFlush = kSteps * Shape::kPieces / Shape::kFlushes;
  const int t = lane % 4;
  std::int32_t dots[kTiles][4] = {};
#pragma unroll
  for (int s = 0; s < kSteps; ++s) {
    std::uint32_t a[4];
    fragment_of<kBits>(batch.words[s], a);
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
      const float2 w_scales = two_floats<__half>(batch.scales[flush]);
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
        const float2 mins = two_floats<__half>(batch.mins.words[flush]);
        const float2 middles{fmaf(w_scales.x, kMiddle<kBits>, mins.x), fmaf(w_scales.y, kMiddle<kBits>, mins.y)};
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

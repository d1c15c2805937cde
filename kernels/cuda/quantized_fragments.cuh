#pragma once

/// Panels of quantised weights as fragments of integer tensor cores.
///
/// Lane l of a warp has group g = l / 4 and place t = l % 4, as kernels/cuda/ptx.cuh says. Rows and columns of a product
/// may be dealt in any order, so they are dealt as they lie in memory: row g of a fragment is row 2g of the panel and row
/// g + 8 is row 2g + 1; lane t's columns of a step are 8t .. 8t+7.

#include <cstdint>

#include "kernels/cuda/device_functions.cuh"
#include "kernels/cuda/element.cuh"
#include "kernels/cuda/ptx.cuh"
#include "kernels/quantized.hpp"

namespace pagoda::kernels::cuda {

constexpr int kStepColumns = 32;                          ///< of one tensor core instruction
constexpr int kBatchSteps = 4;                            ///< whose weights are loaded together
constexpr int kBatchColumns = kBatchSteps * kStepColumns;

/// A panel's weights of one batch, as a lane holds them.
template <int kBits>
struct PanelBatch {
  static constexpr int kLoads = kBits == 8 ? 2 : 1;
  uint2 words[kBatchSteps][kLoads];
};

/// Columns [first, first + kBatchColumns) of a panel; 0 from `padded_columns` on.
template <int kBits>
__device__ __forceinline__ PanelBatch<kBits> load_panel(const std::uint8_t* panel, int first, int padded_columns,
                                                        int lane) {
  constexpr int kPerWord = 32 / kBits;
  const int g = lane / 4;
  const int t = lane % 4;
  PanelBatch<kBits> batch;
#pragma unroll
  for (int s = 0; s < kBatchSteps; ++s) {
    const int column = first + s * kStepColumns + 8 * t;
#pragma unroll
    for (int i = 0; i < PanelBatch<kBits>::kLoads; ++i) {
      const auto word = (static_cast<std::int64_t>(column / kPerWord) + i) * kQuantizedPanel + 2 * g;
      batch.words[s][i] =
          column < padded_columns ? load_once(reinterpret_cast<const uint2*>(panel + word * 4)) : uint2{0, 0};
    }
  }
  return batch;
}

/// What the integers of a fragment are multiplied by on top of q - zero_point.
template <int kBits>
constexpr float kFragmentFactor = kBits == 8 ? 1.0F : 16.0F;

/// The fragment of step s: signed bytes (q - zero_point) * kFragmentFactor.
template <int kBits>
__device__ __forceinline__ void fragment_of(const PanelBatch<kBits>& batch, int s, std::uint32_t (&a)[4]) {
  constexpr std::uint32_t kSigns = 0x80808080U;  // unsigned to signed: minus 128
  const uint2 first = batch.words[s][0];
  if constexpr (kBits == 8) {
    const uint2 second = batch.words[s][1];
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

/// Where groups of columns end.
struct Groups {
  int size = 0;
  int count = 0;
};

/// Adds one batch: sums[n][..] += the products of a panel with kTiles tiles of 8 tokens, each group of columns times its
/// scales. `load_x(n, s)` is the fragment of tile n and step s: integers 8t .. 8t+7 of token g, of which those behind
/// padded_columns are 0. `load_x_scales(n, group)` is the pair of scales of tokens 2t and 2t+1. kHalves: groups may end
/// in the middle of a step.
template <int kBits, bool kHalves, int kTiles, class LoadX, class LoadXScales>
__device__ __forceinline__ void add_batch(const PanelBatch<kBits>& batch, const __half* panel_scales, int first_column,
                                          int padded_columns, Groups groups, int lane, const LoadX& load_x,
                                          const LoadXScales& load_x_scales, float (&sums)[kTiles][4]) {
  constexpr int kPieces = kHalves ? 2 : 1;
  constexpr int kPieceColumns = kStepColumns / kPieces;
  const int g = lane / 4;
  const int t = lane % 4;
  std::int32_t dots[kTiles][4] = {};
  int group = first_column / groups.size;
  int group_end = (group + 1) * groups.size;
#pragma unroll
  for (int s = 0; s < kBatchSteps; ++s) {
    if (first_column + s * kStepColumns >= padded_columns) break;
    std::uint32_t a[4];
    fragment_of<kBits>(batch, s, a);
    std::uint32_t x[kTiles][2];
#pragma unroll
    for (int n = 0; n < kTiles; ++n) {
      const uint2 loaded = load_x(n, s);
      x[n][0] = loaded.x;
      x[n][1] = loaded.y;
    }
#pragma unroll
    for (int piece = 0; piece < kPieces; ++piece) {
      const bool in_piece = !kHalves || t / 2 == piece;
#pragma unroll
      for (int n = 0; n < kTiles; ++n) {
        const std::uint32_t b[2] = {in_piece ? x[n][0] : 0, in_piece ? x[n][1] : 0};
        mma_m16n8k32_s8(dots[n], a, b, dots[n]);
      }
      const int end = first_column + s * kStepColumns + (piece + 1) * kPieceColumns;
      const bool batch_ends = s + 1 == kBatchSteps && piece + 1 == kPieces;
      if (group >= groups.count || (end < group_end && !batch_ends)) continue;
      const float2 w_scales = two_floats<__half>(*reinterpret_cast<const std::uint32_t*>(
          panel_scales + static_cast<std::int64_t>(group) * kQuantizedPanel + 2 * g));
#pragma unroll
      for (int n = 0; n < kTiles; ++n) {
        const float2 x_scales = load_x_scales(n, group);
        sums[n][0] = fmaf(__int2float_rn(dots[n][0]), w_scales.x * x_scales.x, sums[n][0]);
        sums[n][1] = fmaf(__int2float_rn(dots[n][1]), w_scales.x * x_scales.y, sums[n][1]);
        sums[n][2] = fmaf(__int2float_rn(dots[n][2]), w_scales.y * x_scales.x, sums[n][2]);
        sums[n][3] = fmaf(__int2float_rn(dots[n][3]), w_scales.y * x_scales.y, sums[n][3]);
        dots[n][0] = dots[n][1] = dots[n][2] = dots[n][3] = 0;
      }
      if (end == group_end) {
        ++group;
        group_end += groups.size;
      }
    }
  }
}

}  // namespace pagoda::kernels::cuda

#pragma once

/// The thread block that finishes last merges the partial results of a tile of query rows.

#include <cstdint>

#include "kernels/cuda/attention_args.cuh"

namespace pagoda::kernels::cuda {

/// Adds `finished` to the tile's finished parts. Returns true in all threads of the thread block that completes
/// `parts`; that block sees everything the others have written and resets the counter to 0. `flag` is shared memory.
__device__ __forceinline__ bool last_to_finish(std::int32_t* counter, std::int32_t finished, std::int32_t parts,
                                               std::int32_t* flag) {
  __syncthreads();  // all threads have written
  if (threadIdx.x == 0) {
    __threadfence();
    const bool last = atomicAdd(counter, finished) + finished == parts;
    if (last) *counter = 0;
    *flag = last ? 1 : 0;
  }
  __syncthreads();
  const bool last = *flag != 0;
  if (last) __threadfence();
  return last;
}

/// Merges the results of `parts` parts in ascending order into `out`; each thread merges `kWidth` neighbouring columns.
/// The results are read past the L1 cache, which may hold old contents.
template <int kWidth, int kThreads>
__device__ __forceinline__ void merge_parts(const AttentionArgs& args, const RowTile& tile, std::int32_t parts) {
  static_assert(kWidth == 1 || kWidth == 4);
  constexpr int kAtOnce = 8;  // parts that are loaded together
  const std::int32_t pieces = args.head_dim / kWidth;
  for (std::int32_t i = static_cast<std::int32_t>(threadIdx.x); i < tile.num_packed * pieces; i += kThreads) {
    const std::int32_t r = kWidth == 4 ? args.by_head_pieces.quotient(i) : i / pieces;
    const std::int32_t column = (i - r * pieces) * kWidth;
    const PackedRow at = packed_row(args, tile, r);
    const std::int64_t first = partial_index(args, tile, at, 0);
    const float2* states = args.partial_states + first;
    const float* sums = args.partial_sums + first * args.head_dim + column;
    SoftmaxState state{minus_infinity(), 0.0F};
    float merged_sums[kWidth] = {};
#pragma unroll 1
    for (std::int32_t p = 0; p < parts; p += kAtOnce) {
      float2 later[kAtOnce];
      float later_sums[kAtOnce][kWidth];
#pragma unroll
      for (int j = 0; j < kAtOnce; ++j) {
        later[j] = {minus_infinity(), 0.0F};
#pragma unroll
        for (int c = 0; c < kWidth; ++c) later_sums[j][c] = 0.0F;
        if (p + j >= parts) continue;
        later[j] = __ldcg(states + p + j);
        const float* from = sums + std::int64_t{p + j} * args.head_dim;
        if constexpr (kWidth == 4) {
          const float4 four = __ldcg(reinterpret_cast<const float4*>(from));
          later_sums[j][0] = four.x;
          later_sums[j][1] = four.y;
          later_sums[j][2] = four.z;
          later_sums[j][3] = four.w;
        } else {
          later_sums[j][0] = __ldcg(from);
        }
      }
#pragma unroll
      for (int j = 0; j < kAtOnce; ++j) {
        const MergedState merged = merge(state, {later[j].x, later[j].y});
        state = merged.state;
#pragma unroll
        for (int c = 0; c < kWidth; ++c) merged_sums[c] = merge_sum(merged, merged_sums[c], later_sums[j][c]);
      }
    }
    const float factor = __fdividef(1.0F, state.total);
    const OutRow out = out_of(args, tile, at);
    if constexpr (kWidth == 4) {
      out.store(column, float2{merged_sums[0] * factor, merged_sums[1] * factor});
      out.store(column + 2, float2{merged_sums[2] * factor, merged_sums[3] * factor});
    } else {
      out.store(column, merged_sums[0] * factor);
    }
  }
}

}  // namespace pagoda::kernels::cuda

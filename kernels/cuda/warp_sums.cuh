#pragma once

#include <cuda_runtime.h>

namespace pagoda::kernels::cuda {

/// Sums each of kCount values (a power of two) over the 32 lanes of the warp with as few shuffles as possible.
/// Afterwards values[0 .. max(1, kCount / 32) - 1] are the sums of the values from the returned index on. Lanes are
/// added as a tree: 16 apart, then 8, 4, 2, 1, for any kCount.
template <int kCount>
__device__ int sum_over_warp(float (&values)[kCount], int lane) {
  int first = 0;
  int count = kCount;
#pragma unroll
  for (int distance = 16; distance >= 1; distance /= 2) {
    if (count > 1) {
      // Each lane of a pair keeps one half of the values.
      const bool upper = (lane & distance) != 0;
      count /= 2;
      if (upper) first += count;
#pragma unroll
      for (int i = 0; i < kCount / 2; ++i) {
        if (i < count) {
          const float kept = upper ? values[i + count] : values[i];
          const float given = upper ? values[i] : values[i + count];
          values[i] = kept + __shfl_xor_sync(0xFFFFFFFFU, given, distance);
        }
      }
    } else {
      values[0] += __shfl_xor_sync(0xFFFFFFFFU, values[0], distance);
    }
  }
  return first;
}

}  // namespace pagoda::kernels::cuda

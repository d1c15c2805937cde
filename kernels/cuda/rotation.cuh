#pragma once

#include <cuda_runtime.h>

#include "kernels/rotation.hpp"

namespace pagoda::kernels::cuda {

/// Returns the column of this lane after the rotation of a block, whose column `lane` each lane of a warp has as
/// `value` (kernels::rotate_block, with identical bits).
__device__ inline float rotated_x(float value, int lane) {
  static_assert(kRotationBlock == 32, "a block is a warp");
  value *= (kRotationSigns >> lane & 1U) != 0 ? -kRotatedXFactor : kRotatedXFactor;
#pragma unroll
  for (int stride = 1; stride < kRotationBlock; stride *= 2) {
    const float other = __shfl_xor_sync(0xFFFFFFFFU, value, stride);
    value = (lane & stride) != 0 ? other - value : value + other;
  }
  return value;
}

}  // namespace pagoda::kernels::cuda

#pragma once

/// Converts 8-bit floats to wider floats.

#include <cstdint>
#include <cstring>

#include <cuda_fp16.h>
#include <cuda_fp8.h>

namespace pagoda::kernels::cuda {

/// Converts two e4m3 values to float16, exactly; NaN becomes 0x7FFF.
__device__ __forceinline__ std::uint32_t halves_of_e4m3(std::uint32_t two) {
#if defined(PAGODA_CUDA_EMULATED) || (defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 890)
  // Before compute capability 8.9 the toolkit's conversion is a long branch for each value. This code moves exponent
  // and mantissa to their place in float16 and multiplies by 2^8, the difference of the exponent biases. It is also
  // correct for zeros and subnormal values.
  const std::uint32_t magnitudes = (two & 0x7FU) << 7 | (two & 0x7F00U) << 15;
  __half2 pair;
  memcpy(&pair, &magnitudes, sizeof(pair));
  pair = __hmul2(pair, __float2half2_rn(256.0F));
  std::uint32_t bits = 0;
  memcpy(&bits, &pair, sizeof(bits));
  bits |= (two & 0x80U) << 8 | (two & 0x8000U) << 16;
  if ((two & 0x7FU) == 0x7FU) bits = (bits & 0xFFFF0000U) | 0x7FFFU;
  if ((two & 0x7F00U) == 0x7F00U) bits = (bits & 0xFFFFU) | 0x7FFF0000U;
  return bits;
#else
  const __half2_raw wide = __nv_cvt_fp8x2_to_halfraw2(static_cast<__nv_fp8x2_storage_t>(two), __NV_E4M3);
  return wide.x | static_cast<std::uint32_t>(wide.y) << 16;
#endif
}

/// Converts four e4m3 values to float32.
__device__ __forceinline__ float4 floats_of_e4m3(std::uint32_t four) {
  const std::uint32_t words[2] = {halves_of_e4m3(four & 0xFFFFU), halves_of_e4m3(four >> 16)};
  __half2 pairs[2];
  memcpy(pairs, words, sizeof(pairs));
  const float2 low = __half22float2(pairs[0]);
  const float2 high = __half22float2(pairs[1]);
  return {low.x, low.y, high.x, high.y};
}

/// Returns WeightMatrix::scale_columns as a shift: column k has scale k >> shift of its row. The shift is 31 if the
/// whole row has one scale.
inline int scale_shift(std::int64_t scale_columns, std::int64_t columns) {
  if (scale_columns >= columns) return 31;
  int shift = 5;
  while (std::int64_t{1} << shift < scale_columns) ++shift;
  return shift;
}

}  // namespace pagoda::kernels::cuda

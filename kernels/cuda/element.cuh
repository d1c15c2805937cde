#pragma once

/// Loads elements of weights as floats, and words of weights that are read once.

#include <cstdint>

#include <cuda_fp8.h>

#include "kernels/cuda/device_functions.cuh"

namespace pagoda::kernels::cuda {

/// Returns element i of an array of weights of type `dtype`.
__device__ inline float load_element(const void* data, DType dtype, std::int64_t i) {
  if (dtype == DType::f16) return to_float(static_cast<const __half*>(data)[i]);
  if (dtype == DType::bf16) return to_float(static_cast<const __nv_bfloat16*>(data)[i]);
  return static_cast<const float*>(data)[i];
}

__device__ __forceinline__ std::uint32_t bits_of(float x) {
  return __float_as_uint(x);
}
__device__ __forceinline__ std::uint32_t bits_of(__half x) {
  return __half_as_ushort(x);
}
__device__ __forceinline__ std::uint32_t bits_of(__nv_bfloat16 x) {
  return __bfloat16_as_ushort(x);
}
__device__ __forceinline__ std::uint32_t bits_of(__nv_fp8_e4m3 x) {
  return x.__x;
}

/// Returns the two 16-bit elements of a word, first the element in its low half.
template <class T>
__device__ __forceinline__ float2 two_floats(std::uint32_t word) {
  if constexpr (std::is_same_v<T, __nv_bfloat16>) {
    return {__uint_as_float(word << 16), __uint_as_float(word & 0xFFFF0000U)};
  } else {
    return {to_float(__ushort_as_half(static_cast<unsigned short>(word & 0xFFFFU))),
            to_float(__ushort_as_half(static_cast<unsigned short>(word >> 16)))};
  }
}

/// Returns two floats, rounded to 16-bit elements, in one word.
template <class T>
__device__ __forceinline__ std::uint32_t word_of(float low, float high) {
  return bits_of(from_float<T>(low)) | bits_of(from_float<T>(high)) << 16;
}

/// Loads words of weights that no other thread block reads; the load does not fill the L1 cache, which stays free for
/// data that is read often. The address is aligned to the size of the words. Returns 0 if not `valid`, without a
/// branch, so that several loads can be in flight. (It is not a read-only data load, because the compiler may move
/// those over wait_for_stream().)
__device__ __forceinline__ uint4 load_once(const uint4* from, bool valid) {
#ifdef PAGODA_CUDA_EMULATED
  return valid ? *from : uint4{0, 0, 0, 0};
#else
  uint4 words;
  asm volatile(
      "{\n"
      ".reg .pred valid;\n"
      "setp.ne.b32 valid, %5, 0;\n"
      "mov.b32 %0, 0;\n"
      "mov.b32 %1, 0;\n"
      "mov.b32 %2, 0;\n"
      "mov.b32 %3, 0;\n"
      "@valid ld.global.L1::no_allocate.v4.u32 {%0,%1,%2,%3}, [%4];\n"
      "}\n"
      : "=&r"(words.x), "=&r"(words.y), "=&r"(words.z), "=&r"(words.w)
      : "l"(from), "r"(static_cast<int>(valid)));
  return words;
#endif
}
__device__ __forceinline__ uint2 load_once(const uint2* from, bool valid) {
#ifdef PAGODA_CUDA_EMULATED
  return valid ? *from : uint2{0, 0};
#else
  uint2 words;
  asm volatile(
      "{\n"
      ".reg .pred valid;\n"
      "setp.ne.b32 valid, %3, 0;\n"
      "mov.b32 %0, 0;\n"
      "mov.b32 %1, 0;\n"
      "@valid ld.global.L1::no_allocate.v2.u32 {%0,%1}, [%2];\n"
      "}\n"
      : "=&r"(words.x), "=&r"(words.y)
      : "l"(from), "r"(static_cast<int>(valid)));
  return words;
#endif
}

/// Loads a word that other warps may read too; returns 0 if not `valid`.
__device__ __forceinline__ std::uint32_t load_word(const std::uint32_t* from, bool valid) {
#ifdef PAGODA_CUDA_EMULATED
  return valid ? *from : 0;
#else
  std::uint32_t word;
  asm volatile(
      "{\n"
      ".reg .pred valid;\n"
      "setp.ne.b32 valid, %2, 0;\n"
      "mov.b32 %0, 0;\n"
      "@valid ld.global.b32 %0, [%1];\n"
      "}\n"
      : "=&r"(word)
      : "l"(from), "r"(static_cast<int>(valid)));
  return word;
#endif
}

/// Loads half a word into the lower half of the result; returns 0 if not `valid`.
__device__ __forceinline__ std::uint32_t load_half_word(const std::uint16_t* from, bool valid) {
#ifdef PAGODA_CUDA_EMULATED
  return valid ? *from : 0;
#else
  std::uint32_t word;
  asm volatile(
      "{\n"
      ".reg .pred valid;\n"
      "setp.ne.b32 valid, %2, 0;\n"
      "mov.b32 %0, 0;\n"
      "@valid ld.global.u16 %0, [%1];\n"
      "}\n"
      : "=&r"(word)
      : "l"(from), "r"(static_cast<int>(valid)));
  return word;
#endif
}

/// Returns the two lowest bytes of a word as signed numbers, the lower byte first.
__device__ __forceinline__ float2 two_signed_bytes(std::uint32_t word) {
  return {static_cast<float>(static_cast<std::int8_t>(word & 0xFFU)),
          static_cast<float>(static_cast<std::int8_t>(word >> 8 & 0xFFU))};
}

}  // namespace pagoda::kernels::cuda

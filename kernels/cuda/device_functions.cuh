#pragma once

/// Shared code of the kernels: dynamic shared memory, element types, wide loads, and reductions over a warp or a block.

#include <cstdint>
#include <type_traits>

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include "kernels/dtype.hpp"

/// Declares `type* name`, the block's dynamic shared memory, aligned to 128 bytes.
#ifdef PAGODA_CUDA_EMULATED
#define PAGODA_DYNAMIC_SHARED(type, name) type* name = static_cast<type*>(dynamic_shared_memory())
#else
#define PAGODA_DYNAMIC_SHARED(type, name)                                 \
  extern __shared__ __align__(128) unsigned char pagoda_dynamic_shared[]; \
  type* name = reinterpret_cast<type*>(pagoda_dynamic_shared)
#endif

namespace pagoda::kernels::cuda {

constexpr int kWarpSize = 32;
constexpr unsigned int kFullWarp = 0xFFFFFFFFU;

/// Returns the smallest number of pieces that covers `count`.
template <class T>
constexpr __host__ __device__ T ceil_divide(T count, T piece) {
  return (count + piece - 1) / piece;
}

// --- Order in the stream --------------------------------------------------------------------------------------------

/// Waits until all earlier work of the stream has ended and its writes are visible. Call it early in a kernel that is
/// launched with Start::early; before the call the kernel may read only weights. The next kernel may then start on the
/// device and wait in the same way. (The next kernel must not start sooner, because it must not share a cache with
/// the kernel that runs before this kernel.)
__device__ __forceinline__ void wait_for_stream() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;\ngriddepcontrol.launch_dependents;" ::: "memory");
#endif
}

// --- Elements -------------------------------------------------------------------------------------------------------

/// The device's type of a DType.
template <DType dtype>
struct ElementOf;
template <>
struct ElementOf<DType::f32> {
  using Type = float;
};
template <>
struct ElementOf<DType::f16> {
  using Type = __half;
};
template <>
struct ElementOf<DType::bf16> {
  using Type = __nv_bfloat16;
};
template <DType dtype>
using Element = typename ElementOf<dtype>::Type;

__device__ __forceinline__ float to_float(float x) {
  return x;
}
__device__ __forceinline__ float to_float(__half x) {
  return __half2float(x);
}
__device__ __forceinline__ float to_float(__nv_bfloat16 x) {
  return __bfloat162float(x);
}

/// Rounds x to nearest even; a value that is too large for float16 becomes infinite.
template <class T>
__device__ __forceinline__ T from_float(float x);
template <>
__device__ __forceinline__ float from_float<float>(float x) {
  return x;
}
template <>
__device__ __forceinline__ __half from_float<__half>(float x) {
  return __float2half_rn(x);
}
template <>
__device__ __forceinline__ __nv_bfloat16 from_float<__nv_bfloat16>(float x) {
  return __float2bfloat16_rn(x);
}

/// Calls f with a value of the device's type of `dtype`, of which only the type matters; returns the result of f.
template <class F>
auto with_element(DType dtype, const F& f) {
  switch (dtype) {
    case DType::f16:
      return f(__half{});
    case DType::bf16:
      return f(__nv_bfloat16{});
    case DType::f32:
    case DType::fp8_e4m3:  // the types of one byte have their own kernels
    case DType::int8:
      break;
  }
  return f(float{});
}

// --- Wide loads and stores ------------------------------------------------------------------------------------------

/// `count` adjacent elements that are moved together.
template <class T, int count>
struct alignas(sizeof(T) * count) Pack {
  T values[count];
};

/// Number of elements of the widest pack that one instruction moves (16 bytes).
template <class T>
constexpr int kPackSize = 16 / static_cast<int>(sizeof(T));

/// Loads a pack; `from` is aligned to the size of the pack.
template <int count, class T>
__device__ __forceinline__ Pack<T, count> load_pack(const T* from) {
  return *reinterpret_cast<const Pack<T, count>*>(from);
}
template <int count, class T>
__device__ __forceinline__ void store_pack(T* to, const Pack<T, count>& pack) {
  *reinterpret_cast<Pack<T, count>*>(to) = pack;
}

/// Returns whether all addresses and strides (in bytes) are multiples of 16, so that packs may be used.
template <class... Values>
bool all_aligned_16(Values... values) {
  const auto bits = [](auto value) {
    if constexpr (std::is_pointer_v<decltype(value)>) {
      return reinterpret_cast<std::uintptr_t>(value);
    } else {
      return static_cast<std::uintptr_t>(value);
    }
  };
  return ((bits(values) | ...) & std::uintptr_t{15}) == 0;
}

// --- Reductions -----------------------------------------------------------------------------------------------------
// Reductions combine values in one fixed order; every lane or thread gets the result.

struct Sum {
  __device__ float operator()(float a, float b) const { return a + b; }
  static constexpr float kNeutral = 0.0F;
};
struct Maximum {
  __device__ float operator()(float a, float b) const { return fmaxf(a, b); }
  static constexpr float kNeutral = -__builtin_inff();
};

/// Reduces over groups of `width` neighbouring lanes (a power of two); all 32 lanes must call it.
template <class Combine, int width = kWarpSize, class T>
__device__ __forceinline__ T warp_reduce(T value, Combine combine = {}) {
#pragma unroll
  for (int step = width / 2; step > 0; step /= 2) value = combine(value, __shfl_xor_sync(kFullWarp, value, step));
  return value;
}

template <int width = kWarpSize>
__device__ __forceinline__ float warp_sum(float value) {
  return warp_reduce<Sum, width>(value);
}
template <int width = kWarpSize>
__device__ __forceinline__ float warp_max(float value) {
  return warp_reduce<Maximum, width>(value);
}

/// Reduces over a one-dimensional block of `threads` threads (a multiple of 32). Every thread must call it; the next
/// call may follow immediately.
template <class Combine, int threads>
__device__ __forceinline__ float block_reduce(float value) {
  static_assert(threads % kWarpSize == 0 && threads <= 1024);
  constexpr int kWarps = threads / kWarpSize;
  value = warp_reduce<Combine>(value);
  if constexpr (kWarps == 1) return value;
  __shared__ float partial[kWarps];
  const int lane = static_cast<int>(threadIdx.x) % kWarpSize;
  const int warp = static_cast<int>(threadIdx.x) / kWarpSize;
  __syncthreads();  // the last call's partial values have been read
  if (lane == 0) partial[warp] = value;
  __syncthreads();
  value = lane < kWarps ? partial[lane] : Combine::kNeutral;
  return warp_reduce<Combine>(value);
}

template <int threads>
__device__ __forceinline__ float block_sum(float value) {
  return block_reduce<Sum, threads>(value);
}
template <int threads>
__device__ __forceinline__ float block_max(float value) {
  return block_reduce<Maximum, threads>(value);
}

}  // namespace pagoda::kernels::cuda

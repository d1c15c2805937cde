#pragma once

/// PTX instructions that CUDA C++ has no function for. Fragments have the layouts of the PTX ISA, section "Matrix
/// fragments for mma.m16n8k16" (and m16n8k32 for int8): lane l has group g = l / 4 and place t = l % 4.
///
///   A [16, 16], 4 registers of two 16-bit values:
///     a0: row g, columns 2t, 2t+1
///     a1: row g + 8, columns 2t, 2t+1
///     a2: row g, columns 2t+8, 2t+9
///     a3: row g + 8, columns 2t+8, 2t+9
///   B [16, 8], 2 registers:
///     b0: rows 2t, 2t+1, column g
///     b1: rows 2t+8, 2t+9, column g
///   C, D [16, 8], 4 floats:
///     c0, c1: row g, columns 2t, 2t+1
///     c2, c3: row g + 8, columns 2t, 2t+1

#include <cstdint>

#include "kernels/cuda/device_functions.cuh"

#ifdef PAGODA_CUDA_EMULATED
#include "cuda_emulator/ptx.hpp"
#endif

namespace pagoda::kernels::cuda {

/// Computes D = A B + C with 16-bit floats A and B in float32. T is __half or __nv_bfloat16. `d` may be `c`. All 32
/// lanes must call it.
template <class T>
__device__ __forceinline__ void mma_m16n8k16(float (&d)[4], const std::uint32_t (&a)[4], const std::uint32_t (&b)[2],
                                             const float (&c)[4]) {
  static_assert(std::is_same_v<T, __half> || std::is_same_v<T, __nv_bfloat16>);
#ifdef PAGODA_CUDA_EMULATED
  cuda_emulator::mma_m16n8k16<T>(d, a, b, c);
#else
  if constexpr (std::is_same_v<T, __half>) {
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%10,%11,%12,%13};\n"
        : "=f"(d[0]), "=f"(d[1]), "=f"(d[2]), "=f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]), "f"(c[0]), "f"(c[1]), "f"(c[2]), "f"(c[3]));
  } else {
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
        "{%10,%11,%12,%13};\n"
        : "=f"(d[0]), "=f"(d[1]), "=f"(d[2]), "=f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]), "f"(c[0]), "f"(c[1]), "f"(c[2]), "f"(c[3]));
  }
#endif
}

/// Computes D = A B + C with int8 A and B in int32: A [16, 32] by rows, B [32, 8]. Registers as above, with four 8-bit
/// values each: a0: row g, columns 4t .. 4t+3; a1: row g + 8, columns 4t .. 4t+3; a2: row g, columns 4t+16 .. 4t+19;
/// a3: row g + 8, columns 4t+16 .. 4t+19; b0: rows 4t .. 4t+3 of column g; b1: rows 4t+16 .. 4t+19 of column g.
__device__ __forceinline__ void mma_m16n8k32_s8(std::int32_t (&d)[4], const std::uint32_t (&a)[4],
                                                const std::uint32_t (&b)[2], const std::int32_t (&c)[4]) {
#ifdef PAGODA_CUDA_EMULATED
  cuda_emulator::mma_m16n8k32_s8(d, a, b, c);
#else
  asm volatile(
      "mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%10,%11,%12,%13};\n"
      : "=r"(d[0]), "=r"(d[1]), "=r"(d[2]), "=r"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]), "r"(c[0]), "r"(c[1]), "r"(c[2]), "r"(c[3]));
#endif
}

/// Loads 8 x 8 matrices of 16-bit values from shared memory: lanes 8i .. 8i+7 pass the addresses (16-byte aligned) of
/// the rows of matrix i; lane l receives in r[i] columns 2t, 2t+1 of row g of matrix i, or, if `transposed`, rows 2t,
/// 2t+1 of column g. With two matrices the addresses of lanes 16 to 31 are not used. All 32 lanes must call it.
template <bool transposed, int matrices>
__device__ __forceinline__ void load_matrices(std::uint32_t (&r)[matrices], const void* row) {
  static_assert(matrices == 2 || matrices == 4);
#ifdef PAGODA_CUDA_EMULATED
  cuda_emulator::load_matrices<transposed>(r, row);
#else
  const auto address = static_cast<std::uint32_t>(__cvta_generic_to_shared(row));
  if constexpr (matrices == 4) {
    if constexpr (transposed) {
      asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];\n"
                   : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                   : "r"(address)
                   : "memory");
    } else {
      asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];\n"
                   : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                   : "r"(address)
                   : "memory");
    }
  } else {
    if constexpr (transposed) {
      asm volatile("ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%0,%1}, [%2];\n"
                   : "=r"(r[0]), "=r"(r[1])
                   : "r"(address)
                   : "memory");
    } else {
      asm volatile("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0,%1}, [%2];\n"
                   : "=r"(r[0]), "=r"(r[1])
                   : "r"(address)
                   : "memory");
    }
  }
#endif
}

/// Starts a copy of 16 bytes from global to shared memory (both aligned to 16), past the registers and the L1 cache.
/// Only the first `valid_bytes` (0 to 16) are read; the other bytes become zero. The copy belongs to the calling
/// thread's open group.
__device__ __forceinline__ void copy_async_16(void* shared, const void* global, int valid_bytes = 16) {
#ifdef PAGODA_CUDA_EMULATED
  async_copy(shared, global, 16, valid_bytes);
#else
  const auto address = static_cast<std::uint32_t>(__cvta_generic_to_shared(shared));
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;\n" ::"r"(address), "l"(global), "r"(valid_bytes)
               : "memory");
#endif
}

/// Starts a copy of 4 bytes (both addresses aligned to 4). If not `valid`, nothing is read and the bytes become zero.
__device__ __forceinline__ void copy_async_4(void* shared, const void* global, bool valid) {
#ifdef PAGODA_CUDA_EMULATED
  async_copy(shared, global, 4, valid ? 4 : 0);
#else
  const auto address = static_cast<std::uint32_t>(__cvta_generic_to_shared(shared));
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;\n" ::"r"(address), "l"(global), "r"(valid ? 4 : 0)
               : "memory");
#endif
}

/// Closes the calling thread's group of copies.
__device__ __forceinline__ void copy_async_commit() {
#ifdef PAGODA_CUDA_EMULATED
  async_copy_commit();
#else
  asm volatile("cp.async.commit_group;\n" ::: "memory");
#endif
}

/// Waits until at most `groups_left` of the calling thread's groups are unfinished. Other threads see the bytes after a
/// barrier.
template <int groups_left>
__device__ __forceinline__ void copy_async_wait() {
#ifdef PAGODA_CUDA_EMULATED
  async_copy_wait(groups_left);
#else
  asm volatile("cp.async.wait_group %0;\n" ::"n"(groups_left) : "memory");
#endif
}

/// Returns 2^x with an error of about 2 units in the last place; exact for 0 and minus infinity. Subnormal results are
/// zero.
__device__ __forceinline__ float fast_exp2(float x) {
#ifdef PAGODA_CUDA_EMULATED
  return ::exp2f(x);
#else
  float power;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(power) : "f"(x));
  return power;
#endif
}

/// Returns x, but hides its value from the compiler: computations with the result cannot be moved out of a loop.
__device__ __forceinline__ int opaque(int x) {
#ifndef PAGODA_CUDA_EMULATED
  asm volatile("" : "+r"(x));
#endif
  return x;
}

}  // namespace pagoda::kernels::cuda

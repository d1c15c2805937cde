#pragma once

/// Processes rows in steps of four elements (quads). Whether a quad is moved as one pack or as single elements, the
/// arithmetic is identical, so alignment never changes a result.

#include <cstdint>

#include "kernels/cuda/device_functions.cuh"
#include "kernels/ops.hpp"

namespace pagoda::kernels::cuda {

constexpr int kQuad = 4;

/// Returns row[4 * quad] .. row[4 * quad + 3] as float. With `packed`, the row is aligned to a quad and its length is a
/// multiple of four; otherwise elements from index `count` on read as `beyond`.
template <bool packed, class T>
__device__ __forceinline__ float4 load_quad(const T* row, std::int64_t quad, std::int64_t count, float beyond = 0.0F) {
  if constexpr (packed) {
    const auto pack = load_pack<kQuad>(row + quad * kQuad);
    return make_float4(to_float(pack.values[0]), to_float(pack.values[1]), to_float(pack.values[2]),
                       to_float(pack.values[3]));
  } else {
    const std::int64_t first = quad * kQuad;
    return make_float4(to_float(row[first]), first + 1 < count ? to_float(row[first + 1]) : beyond,
                       first + 2 < count ? to_float(row[first + 2]) : beyond,
                       first + 3 < count ? to_float(row[first + 3]) : beyond);
  }
}

template <bool packed, class T>
__device__ __forceinline__ void store_quad(T* row, std::int64_t quad, std::int64_t count, float4 v) {
  if constexpr (packed) {
    store_pack(row + quad * kQuad,
               Pack<T, kQuad>{{from_float<T>(v.x), from_float<T>(v.y), from_float<T>(v.z), from_float<T>(v.w)}});
  } else {
    const std::int64_t first = quad * kQuad;
    row[first] = from_float<T>(v.x);
    if (first + 1 < count) row[first + 1] = from_float<T>(v.y);
    if (first + 2 < count) row[first + 2] = from_float<T>(v.z);
    if (first + 3 < count) row[first + 3] = from_float<T>(v.w);
  }
}

/// The array that an op writes its rows to, in one of the types of activations.
struct OutRows {
  void* data;
  DType dtype;
};
inline OutRows out_rows(float* out, const NarrowRows& narrow) {
  return narrow ? OutRows{narrow.data, narrow.dtype} : OutRows{out, DType::f32};
}

/// Stores a quad of the row that begins at element `first`.
template <bool packed>
__device__ __forceinline__ void store_quad(const OutRows& to, std::int64_t first, std::int64_t quad, std::int64_t count,
                                           float4 v) {
  if (to.dtype == DType::f32) {
    store_quad<packed>(static_cast<float*>(to.data) + first, quad, count, v);
  } else if (to.dtype == DType::bf16) {
    store_quad<packed>(static_cast<__nv_bfloat16*>(to.data) + first, quad, count, v);
  } else {
    store_quad<packed>(static_cast<__half*>(to.data) + first, quad, count, v);
  }
}

__device__ __forceinline__ float4 operator+(float4 a, float4 b) {
  return make_float4(a.x + b.x, a.y + b.y, a.z + b.z, a.w + b.w);
}

/// Applies f to each element.
template <class F>
__device__ __forceinline__ float4 map_quad(float4 v, const F& f) {
  return make_float4(f(v.x), f(v.y), f(v.z), f(v.w));
}

/// Returns whether quads of rows of `count` elements may be moved as packs: the rows are whole quads, and the addresses
/// are multiples of 16.
template <class... Pointers>
bool may_pack(std::int64_t count, Pointers... pointers) {
  return count % kQuad == 0 && all_aligned_16(pointers...);
}

/// Calls f(std::bool_constant<packed>).
template <class F>
auto with_packed(bool packed, const F& f) {
  return packed ? f(std::true_type{}) : f(std::false_type{});
}

/// Returns a grid for `rows` rows; each row is divided into pieces of `threads` quads, at most 65535 in the grid.
inline dim3 row_grid(std::int64_t rows, std::int64_t count, int threads) {
  const std::int64_t pieces = ceil_divide<std::int64_t>(ceil_divide<std::int64_t>(count, kQuad), threads);
  constexpr std::int64_t kMaxPieces = 65535;
  return dim3(static_cast<unsigned>(rows), static_cast<unsigned>(pieces < kMaxPieces ? pieces : kMaxPieces));
}

}  // namespace pagoda::kernels::cuda

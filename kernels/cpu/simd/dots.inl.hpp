#pragma once

// Products of pairs of bfloat16, for machines that have them (kDotsBf16). PAGODA_SIMD names the namespace.

#include "kernels/dtype.hpp"

namespace pagoda::kernels::PAGODA_SIMD {

// vec_*.hpp define these functions; they are called only if kDotsBf16.
Vec dot_bf16(Vec pairs, Vec other_pairs, Vec sum);
Vec bf16_pairs(Vec low, Vec high);
Vec load_some(const float* p, int count);
Vec transpose_square(Vec x);
Vec quad_sums(const Vec (&x)[4]);
void store_eight_bf16(void* p, const float* x);
void load_pairs_bf16(const void* first, const void* second, Vec& first_fours, Vec& last_fours);
void load_fours(const float* p, Vec& first_fours, Vec& last_fours);
void store_fours(float* p, Vec first_fours, Vec last_fours);
Vec load_pairs_bf16(const void* first, const void* second);

namespace {

constexpr bool is_dotted(DType dtype) {
  return kDotsBf16 && dtype == DType::bf16;
}

/// Returns sum + a * b, lane by lane; if `dotted`, each lane is a pair of bfloat16.
template <bool dotted>
inline Vec multiply_add(Vec a, Vec b, Vec sum) {
  if constexpr (dotted) {
    return dot_bf16(a, b, sum);
  } else {
    return fma(a, b, sum);
  }
}

}  // namespace
}  // namespace pagoda::kernels::PAGODA_SIMD

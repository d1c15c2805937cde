#pragma once

/// Eight floats, AVX2 with FMA and F16C. See vec_avx512.hpp for what each function does.

#include <immintrin.h>

#include "kernels/device.hpp"

namespace pagoda::kernels::avx2 {

constexpr int kLanes = 8;
constexpr int kMaxRows = 6;  // 12 sums, 2 vectors of w, 1 broadcast: 15 of 16 registers
constexpr CpuIsa kIsa = CpuIsa::avx2;

struct Vec {
  __m256 v;
};

inline Vec set1(float x) {
  return {_mm256_set1_ps(x)};
}
inline Vec zero() {
  return {_mm256_setzero_ps()};
}
inline Vec iota() {
  return {_mm256_setr_ps(0, 1, 2, 3, 4, 5, 6, 7)};
}
inline Vec load(const float* p) {
  return {_mm256_loadu_ps(p)};
}
inline void store(float* p, Vec x) {
  _mm256_storeu_ps(p, x.v);
}

inline Vec operator+(Vec a, Vec b) {
  return {_mm256_add_ps(a.v, b.v)};
}
inline Vec operator-(Vec a, Vec b) {
  return {_mm256_sub_ps(a.v, b.v)};
}
inline Vec operator*(Vec a, Vec b) {
  return {_mm256_mul_ps(a.v, b.v)};
}
inline Vec operator/(Vec a, Vec b) {
  return {_mm256_div_ps(a.v, b.v)};
}
inline Vec fma(Vec a, Vec b, Vec c) {
  return {_mm256_fmadd_ps(a.v, b.v, c.v)};
}
inline Vec max(Vec a, Vec b) {
  return {_mm256_max_ps(a.v, b.v)};
}
inline Vec min(Vec a, Vec b) {
  return {_mm256_min_ps(a.v, b.v)};
}
inline Vec select_less(Vec a, Vec b, Vec yes, Vec no) {
  return {_mm256_blendv_ps(no.v, yes.v, _mm256_cmp_ps(a.v, b.v, _CMP_LT_OQ))};
}
inline Vec round(Vec x) {
  return {_mm256_round_ps(x.v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC)};
}
inline Vec power_of_two(Vec n) {
  const __m256i exponent = _mm256_slli_epi32(_mm256_add_epi32(_mm256_cvtps_epi32(n.v), _mm256_set1_epi32(127)), 23);
  return {_mm256_castsi256_ps(exponent)};
}
inline Vec times_power_of_two(Vec x, Vec n) {
  const Vec half = round(n * set1(0.5F));  // in two factors: 2^128 has no float
  return (x * power_of_two(half)) * power_of_two(n - half);
}
inline float sum(Vec x) {
  const __m128 four = _mm_add_ps(_mm256_castps256_ps128(x.v), _mm256_extractf128_ps(x.v, 1));
  const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
}
inline float highest(Vec x) {
  const __m128 four = _mm_max_ps(_mm256_castps256_ps128(x.v), _mm256_extractf128_ps(x.v, 1));
  const __m128 two = _mm_max_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_max_ss(two, _mm_movehdup_ps(two)));
}

inline Vec load_bf16(const void* p) {
  const __m256i bits = _mm256_cvtepu16_epi32(_mm_loadu_si128(static_cast<const __m128i*>(p)));
  return {_mm256_castsi256_ps(_mm256_slli_epi32(bits, 16))};
}
inline Vec load_f16(const void* p) {
  return {_mm256_cvtph_ps(_mm_loadu_si128(static_cast<const __m128i*>(p)))};
}
inline void store_bf16(void* p, Vec x) {
  const __m256i bits = _mm256_castps_si256(x.v);
  const __m256i last_kept = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
  const __m256i half = _mm256_add_epi32(last_kept, _mm256_set1_epi32(0x7FFF));
  const __m256i rounded = _mm256_srli_epi32(_mm256_add_epi32(bits, half), 16);
  const __m256i quiet = _mm256_or_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(0x40));
  const __m256i is_nan = _mm256_castps_si256(_mm256_cmp_ps(x.v, x.v, _CMP_UNORD_Q));
  const __m256i words = _mm256_blendv_epi8(rounded, quiet, is_nan);
  const __m128i packed = _mm_packus_epi32(_mm256_castsi256_si128(words), _mm256_extracti128_si256(words, 1));
  _mm_storeu_si128(static_cast<__m128i*>(p), packed);
}
inline void store_f16(void* p, Vec x) {
  _mm_storeu_si128(static_cast<__m128i*>(p), _mm256_cvtps_ph(x.v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}

inline void transpose(Vec (&r)[kLanes]) {
  __m256 t[kLanes];
#pragma GCC unroll 4
  for (int i = 0; i < kLanes; i += 2) {
    t[i] = _mm256_unpacklo_ps(r[i].v, r[i + 1].v);
    t[i + 1] = _mm256_unpackhi_ps(r[i].v, r[i + 1].v);
  }
  __m256 u[kLanes];  // u[4h + c]: column c (and c + 4) of rows 4h .. 4h + 3
#pragma GCC unroll 2
  for (int i = 0; i < kLanes; i += 4) {
    u[i + 0] = _mm256_shuffle_ps(t[i], t[i + 2], 0x44);
    u[i + 1] = _mm256_shuffle_ps(t[i], t[i + 2], 0xEE);
    u[i + 2] = _mm256_shuffle_ps(t[i + 1], t[i + 3], 0x44);
    u[i + 3] = _mm256_shuffle_ps(t[i + 1], t[i + 3], 0xEE);
  }
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
    r[i].v = _mm256_permute2f128_ps(u[i], u[i + 4], 0x20);
    r[i + 4].v = _mm256_permute2f128_ps(u[i], u[i + 4], 0x31);
  }
}
inline Vec even_bf16(Vec pairs) {
  return {_mm256_castsi256_ps(_mm256_slli_epi32(_mm256_castps_si256(pairs.v), 16))};
}
inline Vec odd_bf16(Vec pairs) {
  const __m256i upper = _mm256_set1_epi32(static_cast<int>(0xFFFF0000U));
  return {_mm256_and_ps(pairs.v, _mm256_castsi256_ps(upper))};
}

}  // namespace pagoda::kernels::avx2

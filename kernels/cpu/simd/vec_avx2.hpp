#pragma once

/// Eight floats, AVX2 with FMA and F16C. vec_avx512.hpp describes the functions.

#include <cstdint>

#include <immintrin.h>

#include "kernels/device.hpp"

namespace pagoda::kernels::PAGODA_SIMD {

constexpr int kLanes = 8;
constexpr int kMaxRows = 6;     // 12 sums, 2 vectors of w, 1 broadcast: 15 of 16 registers
constexpr int kLinearRows = 6;  // 12 sums, 2 vectors of w, 1 broadcast: 15 of 16 registers
constexpr int kLinearVectors = 2;
constexpr int kStreamRows = 4;  // 8 sums, 4 vectors of w, 2 widened, 1 broadcast
constexpr int kStreamVectors = 2;
constexpr int kPackingRows = 0;
constexpr int kRegisterTiledRows = 0;
constexpr int kRegisterTiledTile = 0;
constexpr int kWideStreamRows = 4;
constexpr int kMaxSums = 12;  // sums that fit registers beside a few other vectors
constexpr bool kDotsBf16 = false;
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
  const Vec half = round(n * set1(0.5F));  // in two factors, because 2^128 is not a float
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

inline Vec load_int8(const void* p) {
  return {_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64(static_cast<const __m128i*>(p))))};
}
inline void store_int8(void* p, Vec x) {
  const __m256i integers = _mm256_cvtps_epi32(x.v);
  const __m128i words = _mm_packs_epi32(_mm256_castsi256_si128(integers), _mm256_extracti128_si256(integers, 1));
  _mm_storel_epi64(static_cast<__m128i*>(p), _mm_packs_epi16(words, words));
}

inline __m256i fp8_as_f16(__m256i words) {
  const __m256i fields = _mm256_slli_epi16(words, 7);
  const __m256i carried = _mm256_add_epi16(fields, _mm256_set1_epi16(0x80));
  return _mm256_xor_si256(fields, _mm256_and_si256(carried, _mm256_set1_epi16(0x4000)));
}
inline Vec load_fp8(const void* p) {
  const __m128i words = _mm_cvtepi8_epi16(_mm_loadl_epi64(static_cast<const __m128i*>(p)));
  return {_mm256_cvtph_ps(_mm256_castsi256_si128(fp8_as_f16(_mm256_castsi128_si256(words))))};
}
inline void load_pair_fp8(__m128i bytes, Vec& low, Vec& high) {
  const __m256i halves = fp8_as_f16(_mm256_cvtepi8_epi16(bytes));
  low.v = _mm256_cvtph_ps(_mm256_castsi256_si128(halves));
  high.v = _mm256_cvtph_ps(_mm256_extracti128_si256(halves, 1));
}
inline void load_pair_fp8(const void* p, Vec& low, Vec& high) {
  load_pair_fp8(_mm_loadu_si128(static_cast<const __m128i*>(p)), low, high);
}

/// Loads the 8 bytes at rows[r] + at of two rows: 64-bit lane i = bytes 4i .. 4i + 3 of each row.
inline __m128i load_byte_quads(const char* const* rows, std::int64_t at) {
  return _mm_unpacklo_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(rows[0] + at)),
                            _mm_loadl_epi64(reinterpret_cast<const __m128i*>(rows[1] + at)));
}
inline void load_quads_int8(const char* const* rows, std::int64_t at, Vec (&quads)[2]) {
  const __m128i bytes = load_byte_quads(rows, at);
  quads[0].v = _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(bytes));
  quads[1].v = _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_unpackhi_epi64(bytes, bytes)));
}
inline void load_quads_fp8(const char* const* rows, std::int64_t at, Vec (&quads)[2]) {
  load_pair_fp8(load_byte_quads(rows, at), quads[0], quads[1]);
}

struct Square {
  __m256 pieces[2][4];
};
inline Square load_square(const float* const* rows, std::int64_t at) {
  Square square;
#pragma GCC unroll 4
  for (int j = 0; j < 4; ++j) {
    const __m256 upper = load(rows[j] + at).v;
    const __m256 lower = load(rows[4 + j] + at).v;
    square.pieces[0][j] = _mm256_permute2f128_ps(upper, lower, 0x20);
    square.pieces[1][j] = _mm256_permute2f128_ps(upper, lower, 0x31);
  }
  return square;
}
inline void columns_of(const Square& square, int group, Vec (&t)[4]) {
  const __m256(&rows)[4] = square.pieces[group];
  const __m256 low_01 = _mm256_unpacklo_ps(rows[0], rows[1]);
  const __m256 high_01 = _mm256_unpackhi_ps(rows[0], rows[1]);
  const __m256 low_23 = _mm256_unpacklo_ps(rows[2], rows[3]);
  const __m256 high_23 = _mm256_unpackhi_ps(rows[2], rows[3]);
  t[0].v = _mm256_shuffle_ps(low_01, low_23, 0x44);
  t[1].v = _mm256_shuffle_ps(low_01, low_23, 0xEE);
  t[2].v = _mm256_shuffle_ps(high_01, high_23, 0x44);
  t[3].v = _mm256_shuffle_ps(high_01, high_23, 0xEE);
}
inline Vec even_bf16(Vec pairs) {
  return {_mm256_castsi256_ps(_mm256_slli_epi32(_mm256_castps_si256(pairs.v), 16))};
}
inline Vec odd_bf16(Vec pairs) {
  const __m256i upper = _mm256_set1_epi32(static_cast<int>(0xFFFF0000U));
  return {_mm256_and_ps(pairs.v, _mm256_castsi256_ps(upper))};
}
inline Vec broadcast_quad(const float* p) {
  return {_mm256_broadcast_ps(reinterpret_cast<const __m128*>(p))};
}
inline void transpose_quads(Vec (&r)[kLanes / 4]) {
  const __m256 first = r[0].v;
  r[0].v = _mm256_permute2f128_ps(first, r[1].v, 0x20);
  r[1].v = _mm256_permute2f128_ps(first, r[1].v, 0x31);
}
inline void add_quad_sums(const Vec (&x)[2], bool starts_at_zero, float* sums) {
  const __m256 half = _mm256_add_ps(_mm256_unpacklo_ps(x[0].v, x[1].v), _mm256_unpackhi_ps(x[0].v, x[1].v));
  const __m256 whole = _mm256_add_ps(half, _mm256_permute_ps(half, 0x4E));
  const __m128 interleaved = _mm_unpacklo_ps(_mm256_castps256_ps128(whole), _mm256_extractf128_ps(whole, 1));
  _mm_storeu_ps(sums, starts_at_zero ? interleaved : _mm_add_ps(_mm_loadu_ps(sums), interleaved));
}

}  // namespace pagoda::kernels::PAGODA_SIMD

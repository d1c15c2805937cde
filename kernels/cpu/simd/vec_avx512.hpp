#pragma once

/// Sixteen floats, AVX-512 F, BW, DQ and VL, and BF16 if the compiler targets it. Every vec_*.hpp offers the same names
/// in a namespace of its own, so that no function compiled for one instruction set can be linked into code for another.

#include <cstdint>

#include <immintrin.h>

#include "kernels/device.hpp"

namespace pagoda::kernels::PAGODA_SIMD {

constexpr int kLanes = 16;
constexpr int kMaxRows = 14;    // 28 sums, 2 vectors of w, 1 broadcast: 31 of 32 registers
constexpr int kLinearRows = 6;  // 24 sums, 4 vectors of w, 1 broadcast: 29 of 32 registers
constexpr int kLinearVectors = 4;
constexpr int kStreamRows = 8;  // 16 sums, 8 vectors of w, 2 widened, 1 broadcast
constexpr int kStreamVectors = 2;
constexpr int kPackingRows = 5;
constexpr int kRegisterTiledTile = 16;  // 16 sums, 4 vectors of w, 1 widened, 1 broadcast
constexpr int kWideStreamRows = 5;
constexpr int kMaxSums = 24;  // sums that fit registers beside a few other vectors
#if defined(__AVX512BF16__)
constexpr bool kDotsBf16 = true;
constexpr int kRegisterTiledRows = 96;
constexpr CpuIsa kIsa = CpuIsa::avx512_bf16;
#else
constexpr bool kDotsBf16 = false;
constexpr int kRegisterTiledRows = kRegisterTiledTile;
constexpr CpuIsa kIsa = CpuIsa::avx512;
#endif

struct Vec {
  __m512 v;
};

inline Vec set1(float x) {
  return {_mm512_set1_ps(x)};
}
inline Vec zero() {
  return {_mm512_setzero_ps()};
}
inline Vec iota() {
  return {_mm512_setr_ps(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15)};
}
inline Vec load(const float* p) {
  return {_mm512_loadu_ps(p)};
}
/// Loads the first `count` floats (all lanes if count >= kLanes, none if count <= 0); the other lanes are zero.
inline Vec load_some(const float* p, int count) {
  if (count >= kLanes) return load(p);
  if (count <= 0) return zero();
  return {_mm512_maskz_loadu_ps(static_cast<__mmask16>((1U << count) - 1), p)};
}
inline void store(float* p, Vec x) {
  _mm512_storeu_ps(p, x.v);
}

inline Vec operator+(Vec a, Vec b) {
  return {_mm512_add_ps(a.v, b.v)};
}
inline Vec operator-(Vec a, Vec b) {
  return {_mm512_sub_ps(a.v, b.v)};
}
inline Vec operator*(Vec a, Vec b) {
  return {_mm512_mul_ps(a.v, b.v)};
}
inline Vec operator/(Vec a, Vec b) {
  return {_mm512_div_ps(a.v, b.v)};
}
/// Returns a * b + c, rounded once if the machine has fused multiply-add.
inline Vec fma(Vec a, Vec b, Vec c) {
  return {_mm512_fmadd_ps(a.v, b.v, c.v)};
}
/// Returns a > b ? a : b, so b if either is NaN; min returns a < b ? a : b.
inline Vec max(Vec a, Vec b) {
  return {_mm512_max_ps(a.v, b.v)};
}
inline Vec min(Vec a, Vec b) {
  return {_mm512_min_ps(a.v, b.v)};
}
/// Returns a < b ? yes : no, lane by lane.
inline Vec select_less(Vec a, Vec b, Vec yes, Vec no) {
  return {_mm512_mask_blend_ps(_mm512_cmp_ps_mask(a.v, b.v, _CMP_LT_OQ), no.v, yes.v)};
}
/// Rounds to the nearest integer; |x| < 2^22.
inline Vec round(Vec x) {
  return {_mm512_roundscale_ps(x.v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC)};
}
/// Returns x * 2^n for integral n in [-126, 128].
inline Vec times_power_of_two(Vec x, Vec n) {
  return {_mm512_scalef_ps(x.v, n.v)};
}
/// Returns the sum of all lanes, added in one fixed order.
inline float sum(Vec x) {
  return _mm512_reduce_add_ps(x.v);
}
inline float highest(Vec x) {
  return _mm512_reduce_max_ps(x.v);
}

inline Vec load_bf16(const void* p) {
  const __m512i bits = _mm512_cvtepu16_epi32(_mm256_loadu_si256(static_cast<const __m256i*>(p)));
  return {_mm512_castsi512_ps(_mm512_slli_epi32(bits, 16))};
}
inline Vec load_f16(const void* p) {
  return {_mm512_cvtph_ps(_mm256_loadu_si256(static_cast<const __m256i*>(p)))};
}
inline void store_bf16(void* p, Vec x) {
  const __m512i bits = _mm512_castps_si512(x.v);
  const __m512i last_kept = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
  const __m512i half = _mm512_add_epi32(last_kept, _mm512_set1_epi32(0x7FFF));
  const __m512i rounded = _mm512_srli_epi32(_mm512_add_epi32(bits, half), 16);
  const __m512i quiet = _mm512_or_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(0x40));
  const __mmask16 is_nan = _mm512_cmp_ps_mask(x.v, x.v, _CMP_UNORD_Q);
  _mm256_storeu_si256(static_cast<__m256i*>(p), _mm512_cvtepi32_epi16(_mm512_mask_blend_epi32(is_nan, rounded, quiet)));
}
inline void store_f16(void* p, Vec x) {
  _mm256_storeu_si256(static_cast<__m256i*>(p), _mm512_cvtps_ph(x.v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}

inline Vec load_int8(const void* p) {
  return {_mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128(static_cast<const __m128i*>(p))))};
}
/// Stores the lanes as int8, rounded to nearest even, saturated.
inline void store_int8(void* p, Vec x) {
  _mm_storeu_si128(static_cast<__m128i*>(p), _mm512_cvtsepi32_epi8(_mm512_cvtps_epi32(x.v)));
}

/// Returns fp8_e4m3 values as float16, in units of kFp8Unit. The fields of an fp8_e4m3 are those of a float16 that is
/// 2^8 times smaller, with a shorter fraction. Bit 14 of the float16, the top bit of its exponent, must be set only for
/// NaN, the only magnitude that carries into bit 14 when 2^7 is added. `words` are the bytes, sign-extended.
inline __m512i fp8_as_f16(__m512i words) {
  constexpr int kSelectXorElseFirst = 0x78;  // bits of a ^ (b & c)
  const __m512i fields = _mm512_slli_epi16(words, 7);
  const __m512i carried = _mm512_add_epi16(fields, _mm512_set1_epi16(0x80));
  return _mm512_ternarylogic_epi32(fields, carried, _mm512_set1_epi16(0x4000), kSelectXorElseFirst);
}
/// Loads fp8_e4m3 values in units of kFp8Unit, as all functions below do.
inline Vec load_fp8(const void* p) {
  const __m256i words = _mm256_cvtepi8_epi16(_mm_loadu_si128(static_cast<const __m128i*>(p)));
  return {_mm512_cvtph_ps(_mm512_castsi512_si256(fp8_as_f16(_mm512_castsi256_si512(words))))};
}
inline void load_pair_fp8(const void* p, Vec& low, Vec& high) {
  const __m512i halves = fp8_as_f16(_mm512_cvtepi8_epi16(_mm256_loadu_si256(static_cast<const __m256i*>(p))));
  low.v = _mm512_cvtph_ps(_mm512_castsi512_si256(halves));
  high.v = _mm512_cvtph_ps(_mm512_extracti64x4_epi64(halves, 1));
}

/// Loads the 16 bytes at rows[r] + at of four rows: 128-bit lane i = bytes 4i .. 4i + 3 of each row.
inline __m512i load_byte_quads(const char* const* rows, std::int64_t at) {
  const auto row = [&](int r) { return _mm_loadu_si128(reinterpret_cast<const __m128i*>(rows[r] + at)); };
  __m512i all = _mm512_castsi128_si512(row(0));
  all = _mm512_inserti32x4(all, row(1), 1);
  all = _mm512_inserti32x4(all, row(2), 2);
  all = _mm512_inserti32x4(all, row(3), 3);
  return _mm512_permutexvar_epi32(_mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15), all);
}
/// Loads 16 elements of each of four rows: quads[i] = elements 4i .. 4i + 3 of each row, widened.
inline void load_quads_int8(const char* const* rows, std::int64_t at, Vec (&quads)[4]) {
  const __m512i bytes = load_byte_quads(rows, at);
  quads[0].v = _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm512_castsi512_si128(bytes)));
  quads[1].v = _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm512_extracti32x4_epi32(bytes, 1)));
  quads[2].v = _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm512_extracti32x4_epi32(bytes, 2)));
  quads[3].v = _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm512_extracti32x4_epi32(bytes, 3)));
}
inline void load_quads_fp8(const char* const* rows, std::int64_t at, Vec (&quads)[4]) {
  const __m512i bytes = load_byte_quads(rows, at);
  const __m512i low = fp8_as_f16(_mm512_cvtepi8_epi16(_mm512_castsi512_si256(bytes)));
  const __m512i high = fp8_as_f16(_mm512_cvtepi8_epi16(_mm512_extracti64x4_epi64(bytes, 1)));
  quads[0].v = _mm512_cvtph_ps(_mm512_castsi512_si256(low));
  quads[1].v = _mm512_cvtph_ps(_mm512_extracti64x4_epi64(low, 1));
  quads[2].v = _mm512_cvtph_ps(_mm512_castsi512_si256(high));
  quads[3].v = _mm512_cvtph_ps(_mm512_extracti64x4_epi64(high, 1));
}

/// A square of 32-bit elements, half transposed: pieces[g][j], 128-bit lane i = elements 4g .. 4g + 3 of row 4i + j.
/// Each row is loaded whole and once: rows are often a power of two apart, so that their lines compete for one set of
/// the first-level cache and would be evicted before a second access.
struct Square {
  __m512 pieces[4][4];
};
/// Loads the floats at rows[r] + at, r < lanes.
inline Square load_square(const float* const* rows, std::int64_t at) {
  Square square;
#pragma GCC unroll 4
  for (int j = 0; j < 4; ++j) {
    const __m512 row_0 = load(rows[j] + at).v;
    const __m512 row_1 = load(rows[4 + j] + at).v;
    const __m512 row_2 = load(rows[8 + j] + at).v;
    const __m512 row_3 = load(rows[12 + j] + at).v;
    const __m512 low_01 = _mm512_shuffle_f32x4(row_0, row_1, 0x44);
    const __m512 high_01 = _mm512_shuffle_f32x4(row_0, row_1, 0xEE);
    const __m512 low_23 = _mm512_shuffle_f32x4(row_2, row_3, 0x44);
    const __m512 high_23 = _mm512_shuffle_f32x4(row_2, row_3, 0xEE);
    square.pieces[0][j] = _mm512_shuffle_f32x4(low_01, low_23, 0x88);
    square.pieces[1][j] = _mm512_shuffle_f32x4(low_01, low_23, 0xDD);
    square.pieces[2][j] = _mm512_shuffle_f32x4(high_01, high_23, 0x88);
    square.pieces[3][j] = _mm512_shuffle_f32x4(high_01, high_23, 0xDD);
  }
  return square;
}
/// Writes columns 4 * group .. 4 * group + 3 to t: lane r of t[i] is the element of row r.
inline void columns_of(const Square& square, int group, Vec (&t)[4]) {
  const __m512(&rows)[4] = square.pieces[group];
  const __m512 low_01 = _mm512_unpacklo_ps(rows[0], rows[1]);
  const __m512 high_01 = _mm512_unpackhi_ps(rows[0], rows[1]);
  const __m512 low_23 = _mm512_unpacklo_ps(rows[2], rows[3]);
  const __m512 high_23 = _mm512_unpackhi_ps(rows[2], rows[3]);
  t[0].v = _mm512_shuffle_ps(low_01, low_23, 0x44);
  t[1].v = _mm512_shuffle_ps(low_01, low_23, 0xEE);
  t[2].v = _mm512_shuffle_ps(high_01, high_23, 0x44);
  t[3].v = _mm512_shuffle_ps(high_01, high_23, 0xEE);
}
/// Return the first and the second bfloat16 of each 32-bit lane (in memory order), widened.
inline Vec even_bf16(Vec pairs) {
  return {_mm512_castsi512_ps(_mm512_slli_epi32(_mm512_castps_si512(pairs.v), 16))};
}
inline Vec odd_bf16(Vec pairs) {
  return {_mm512_and_ps(pairs.v, _mm512_castsi512_ps(_mm512_set1_epi32(static_cast<int>(0xFFFF0000U))))};
}
/// Loads 16 columns of two rows of bfloat16: each lane holds a column's element of the first row and of the second.
inline Vec load_pairs_bf16(const void* first, const void* second) {
  const __m512i a = _mm512_cvtepu16_epi32(_mm256_loadu_si256(static_cast<const __m256i*>(first)));
  const __m512i b = _mm512_cvtepu16_epi32(_mm256_loadu_si256(static_cast<const __m256i*>(second)));
  return {_mm512_castsi512_ps(_mm512_or_si512(a, _mm512_slli_epi32(b, 16)))};
}
/// Returns the pairs first[i], second[i] as bfloat16, rounded to nearest, halves away from zero.
inline Vec round_to_pairs(Vec first, Vec second) {
  constexpr __mmask32 kSecond = 0xAAAAAAAA;
  const __m512i half = _mm512_set1_epi32(0x8000);
  const __m512i a = _mm512_srli_epi32(_mm512_add_epi32(_mm512_castps_si512(first.v), half), 16);
  const __m512i b = _mm512_add_epi32(_mm512_castps_si512(second.v), half);
  return {_mm512_castsi512_ps(_mm512_mask_blend_epi16(kSecond, a, b))};
}
#if defined(__AVX512BF16__)
/// Returns, lane by lane, chain + the products of two pairs of bfloat16, in float32 (subnormal numbers count as zero).
inline Vec dot_bf16(Vec quad, Vec weights, Vec chain) {
  // Not the intrinsic, because GCC 12 copies every sum twice around it.
  asm("vdpbf16ps %2, %1, %0" : "+v"(chain.v) : "v"(weights.v), "v"(quad.v));
  return chain;
}
/// Returns both vectors as bfloat16, first `low`, then `high`, rounded to nearest even.
inline Vec bf16_pairs(Vec low, Vec high) {
  const auto rounded = _mm512_cvtne2ps_pbh(high.v, low.v);
  Vec pairs;
  __builtin_memcpy(&pairs, &rounded, sizeof(pairs));
  return pairs;
}
/// Loads 32 columns of two rows of bfloat16: each lane holds a column's element of the first row and of the second.
/// first_fours has the first four columns of each eight, last_fours the last four.
inline void load_pairs_bf16(const void* first, const void* second, Vec& first_fours, Vec& last_fours) {
  const __m512i a = _mm512_loadu_si512(first);
  const __m512i b = _mm512_loadu_si512(second);
  first_fours.v = _mm512_castsi512_ps(_mm512_unpacklo_epi16(a, b));
  last_fours.v = _mm512_castsi512_ps(_mm512_unpackhi_epi16(a, b));
}
/// Load and store 32 floats in the order of columns of load_pairs_bf16.
inline void load_fours(const float* p, Vec& first_fours, Vec& last_fours) {
  const __m512 low = _mm512_loadu_ps(p);
  const __m512 high = _mm512_loadu_ps(p + kLanes);
  first_fours.v = _mm512_shuffle_f32x4(low, high, 0x88);
  last_fours.v = _mm512_shuffle_f32x4(low, high, 0xDD);
}
inline void store_fours(float* p, Vec first_fours, Vec last_fours) {
  const __m512i of_low = _mm512_setr_epi32(0, 1, 2, 3, 16, 17, 18, 19, 4, 5, 6, 7, 20, 21, 22, 23);
  const __m512i of_high = _mm512_setr_epi32(8, 9, 10, 11, 24, 25, 26, 27, 12, 13, 14, 15, 28, 29, 30, 31);
  _mm512_storeu_ps(p, _mm512_permutex2var_ps(first_fours.v, of_low, last_fours.v));
  _mm512_storeu_ps(p + kLanes, _mm512_permutex2var_ps(first_fours.v, of_high, last_fours.v));
}
/// Stores eight floats as bfloat16, rounded to nearest even.
inline void store_eight_bf16(void* p, const float* x) {
  const auto rounded = _mm256_cvtneps_pbh(_mm256_loadu_ps(x));
  __builtin_memcpy(p, &rounded, sizeof(rounded));
}
#endif
/// Returns four floats, repeated in each 128-bit lane.
inline Vec broadcast_quad(const float* p) {
  return {_mm512_broadcast_f32x4(_mm_loadu_ps(p))};
}
/// Transposes a square of floats that has one row in each 128-bit lane.
inline Vec transpose_square(Vec x) {
  const __m512i by_column = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
  return {_mm512_permutexvar_ps(by_column, x.v)};
}
/// Transposes a square of 128-bit lanes: swaps lane j of r[i] and lane i of r[j].
inline void transpose_quads(Vec (&r)[kLanes / 4]) {
  const __m512 low_01 = _mm512_shuffle_f32x4(r[0].v, r[1].v, 0x44);
  const __m512 low_23 = _mm512_shuffle_f32x4(r[2].v, r[3].v, 0x44);
  const __m512 high_01 = _mm512_shuffle_f32x4(r[0].v, r[1].v, 0xEE);
  const __m512 high_23 = _mm512_shuffle_f32x4(r[2].v, r[3].v, 0xEE);
  r[0].v = _mm512_shuffle_f32x4(low_01, low_23, 0x88);
  r[1].v = _mm512_shuffle_f32x4(low_01, low_23, 0xDD);
  r[2].v = _mm512_shuffle_f32x4(high_01, high_23, 0x88);
  r[3].v = _mm512_shuffle_f32x4(high_01, high_23, 0xDD);
}
/// Returns a square of floats with one row in each 128-bit lane: row i, column v is the sum of 128-bit lane i of x[v],
/// added as (0 + 2) + (1 + 3).
inline Vec quad_sums(const Vec (&x)[4]) {
  const __m512 half_01 = _mm512_add_ps(_mm512_unpacklo_ps(x[0].v, x[1].v), _mm512_unpackhi_ps(x[0].v, x[1].v));
  const __m512 half_23 = _mm512_add_ps(_mm512_unpacklo_ps(x[2].v, x[3].v), _mm512_unpackhi_ps(x[2].v, x[3].v));
  return {_mm512_add_ps(_mm512_shuffle_ps(half_01, half_23, 0x44), _mm512_shuffle_ps(half_01, half_23, 0xEE))};
}
/// sums[(lanes / 4) * v + i] += the sum of 128-bit lane i of x[v], added as (0 + 2) + (1 + 3); if `starts_at_zero`, =
/// instead of +=.
inline void add_quad_sums(const Vec (&x)[4], bool starts_at_zero, float* sums) {
  const Vec block = transpose_square(quad_sums(x));
  store(sums, starts_at_zero ? block : load(sums) + block);
}
inline void add_quad_sums(const Vec (&x)[2], bool starts_at_zero, float* sums) {
  const __m512 half = _mm512_add_ps(_mm512_unpacklo_ps(x[0].v, x[1].v), _mm512_unpackhi_ps(x[0].v, x[1].v));
  const __m512 whole = _mm512_add_ps(half, _mm512_permute_ps(half, 0x4E));
  const __m512i by_vector = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 0, 0, 0, 0, 0, 0, 0, 0);
  const __m256 block = _mm512_castps512_ps256(_mm512_permutexvar_ps(by_vector, whole));
  _mm256_storeu_ps(sums, starts_at_zero ? block : _mm256_add_ps(_mm256_loadu_ps(sums), block));
}

}  // namespace pagoda::kernels::PAGODA_SIMD

#pragma once

/// Eight 32-bit lanes. See ints_avx512.hpp for what each function does.

#include <cstdint>

#include "kernels/cpu/simd/vec_avx2.hpp"

namespace pagoda::kernels::PAGODA_SIMD {

struct Ints {
  __m256i v;
};
struct Bytes {
  __m256i v;
};

inline Ints set1_int(std::int32_t x) {
  return {_mm256_set1_epi32(x)};
}
inline Ints operator+(Ints a, Ints b) {
  return {_mm256_add_epi32(a.v, b.v)};
}
inline std::int32_t sum(Ints x) {
  const __m128i half = _mm_add_epi32(_mm256_castsi256_si128(x.v), _mm256_extracti128_si256(x.v, 1));
  const __m128i quarter = _mm_add_epi32(half, _mm_shuffle_epi32(half, 0x4E));
  return _mm_cvtsi128_si32(_mm_add_epi32(quarter, _mm_shuffle_epi32(quarter, 0xB1)));
}
inline Ints round_to_ints(Vec x) {
  return {_mm256_cvtps_epi32(x.v)};
}
inline Vec to_floats(Ints x) {
  return {_mm256_cvtepi32_ps(x.v)};
}
inline Vec fused(Vec a, Vec b, Vec c) {
  return fma(a, b, c);
}
inline void store_int8(std::int8_t* p, Ints x) {
  const __m128i words = _mm_packs_epi32(_mm256_castsi256_si128(x.v), _mm256_extracti128_si256(x.v, 1));
  _mm_storel_epi64(reinterpret_cast<__m128i*>(p), _mm_packs_epi16(words, words));
}

inline Bytes load_bytes(const void* p) {
  return {_mm256_loadu_si256(static_cast<const __m256i*>(p))};
}
inline void store_bytes(void* p, Bytes x) {
  _mm256_storeu_si256(static_cast<__m256i*>(p), x.v);
}
inline Bytes low_halves(Bytes x) {
  return {_mm256_and_si256(x.v, _mm256_set1_epi8(0x0F))};
}
inline Bytes high_halves(Bytes x) {
  return {_mm256_and_si256(_mm256_srli_epi16(x.v, 4), _mm256_set1_epi8(0x0F))};
}
inline __m256i broadcast_four(const std::int8_t* p) {
  std::int32_t four;
  __builtin_memcpy(&four, p, sizeof(four));
  return _mm256_set1_epi32(four);
}

#if defined(__AVXVNNI__)
constexpr int kQuantizedRows = 3;  // 6 dots, 6 sums, 2 vectors of w, 1 broadcast: 15 of 16 registers
constexpr int kQuantizedPanels = 1;

using Weights = Bytes;
using Quad = Bytes;
inline Weights weights_of(Bytes w) {
  return w;
}
inline Quad broadcast_quad_of_bytes(const std::int8_t* p) {
  return {broadcast_four(p)};
}
inline Ints add_dots(Ints sums, Weights w, Quad x) {
  return {_mm256_dpbusd_avx_epi32(sums.v, w.v, x.v)};
}
#else
constexpr int kQuantizedRows = 2;  // 4 dots, 4 sums, 4 vectors of w, 2 broadcasts: 14 of 16 registers
constexpr int kQuantizedPanels = 1;

struct Weights {
  __m256i even;
  __m256i odd;
};
using Quad = Weights;
inline Weights weights_of(Bytes w) {
  return {_mm256_and_si256(w.v, _mm256_set1_epi16(0xFF)), _mm256_srli_epi16(w.v, 8)};
}
inline Quad broadcast_quad_of_bytes(const std::int8_t* p) {
  const __m256i four = broadcast_four(p);
  return {_mm256_srai_epi16(_mm256_slli_epi16(four, 8), 8), _mm256_srai_epi16(four, 8)};
}
inline Ints add_dots(Ints sums, Weights w, Quad x) {
  return {
      _mm256_add_epi32(sums.v, _mm256_add_epi32(_mm256_madd_epi16(w.even, x.even), _mm256_madd_epi16(w.odd, x.odd)))};
}
#endif

}  // namespace pagoda::kernels::PAGODA_SIMD

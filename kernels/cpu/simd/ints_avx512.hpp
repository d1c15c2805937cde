#pragma once

/// Small integers beside vec_avx512.hpp: sixteen 32-bit lanes. Every ints_*.hpp offers the same names.

#include <cstdint>

#include "kernels/cpu/simd/vec_avx512.hpp"

namespace pagoda::kernels::PAGODA_SIMD {

/// 32-bit integers.
struct Ints {
  __m512i v;
};
/// Four bytes per 32-bit lane.
struct Bytes {
  __m512i v;
};

inline Ints set1_int(std::int32_t x) {
  return {_mm512_set1_epi32(x)};
}
inline Ints operator+(Ints a, Ints b) {
  return {_mm512_add_epi32(a.v, b.v)};
}
inline std::int32_t sum(Ints x) {
  return _mm512_reduce_add_epi32(x.v);
}
/// To nearest, ties to even.
inline Ints round_to_ints(Vec x) {
  return {_mm512_cvtps_epi32(x.v)};
}
inline Vec to_floats(Ints x) {
  return {_mm512_cvtepi32_ps(x.v)};
}
/// a * b + c, rounded once on every machine.
inline Vec fused(Vec a, Vec b, Vec c) {
  return fma(a, b, c);
}
/// Lanes as bytes, saturated.
inline void store_int8(std::int8_t* p, Ints x) {
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm512_cvtsepi32_epi8(x.v));
}

inline Bytes load_bytes(const void* p) {
  return {_mm512_loadu_si512(p)};
}
inline void store_bytes(void* p, Bytes x) {
  _mm512_storeu_si512(p, x.v);
}
inline Bytes low_halves(Bytes x) {
  return {_mm512_and_si512(x.v, _mm512_set1_epi8(0x0F))};
}
inline Bytes high_halves(Bytes x) {
  return {_mm512_and_si512(_mm512_srli_epi16(x.v, 4), _mm512_set1_epi8(0x0F))};
}
inline __m512i broadcast_four(const std::int8_t* p) {
  std::int32_t four;
  __builtin_memcpy(&four, p, sizeof(four));
  return _mm512_set1_epi32(four);
}

// Weights are unsigned bytes, x signed ones. add_dots(sums, w, x): lane i += dot of the four bytes of w's lane i and of
// x, exact.
#if defined(__AVX512VNNI__)
constexpr int kQuantizedRows = 8;  // 24 dots, 3 vectors of w, 1 broadcast: 28 of 32 registers
constexpr int kQuantizedPanels = 3;

using Weights = Bytes;
using Quad = Bytes;
inline Weights weights_of(Bytes w) {
  return w;
}
inline Quad broadcast_quad_of_bytes(const std::int8_t* p) {
  return {broadcast_four(p)};
}
inline Ints add_dots(Ints sums, Weights w, Quad x) {
  // Not the intrinsic: around it GCC 12 copies every sum twice.
  asm("vpdpbusd %2, %1, %0" : "+v"(sums.v) : "v"(w.v), "v"(x.v));
  return sums;
}
#else
constexpr int kQuantizedRows = 4;  // 8 dots, 8 sums, 4 vectors of w, 2 broadcasts: 22 of 32 registers
constexpr int kQuantizedPanels = 2;

/// Bytes as 16-bit integers: the first and third of each four, the second and fourth.
struct Weights {
  __m512i even;
  __m512i odd;
};
using Quad = Weights;
inline Weights weights_of(Bytes w) {
  return {_mm512_and_si512(w.v, _mm512_set1_epi16(0xFF)), _mm512_srli_epi16(w.v, 8)};
}
inline Quad broadcast_quad_of_bytes(const std::int8_t* p) {
  const __m512i four = broadcast_four(p);
  return {_mm512_srai_epi16(_mm512_slli_epi16(four, 8), 8), _mm512_srai_epi16(four, 8)};
}
inline Ints add_dots(Ints sums, Weights w, Quad x) {
  return {
      _mm512_add_epi32(sums.v, _mm512_add_epi32(_mm512_madd_epi16(w.even, x.even), _mm512_madd_epi16(w.odd, x.odd)))};
}
#endif

}  // namespace pagoda::kernels::PAGODA_SIMD

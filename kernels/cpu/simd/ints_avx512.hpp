#pragma once

/// Small integers for vec_avx512.hpp: sixteen 32-bit lanes. Every ints_*.hpp offers the same names.

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
/// Rounds to nearest, ties to even.
inline Ints round_to_ints(Vec x) {
  return {_mm512_cvtps_epi32(x.v)};
}
inline Vec to_floats(Ints x) {
  return {_mm512_cvtepi32_ps(x.v)};
}
/// Returns a * b + c, rounded once on every machine.
inline Vec fused(Vec a, Vec b, Vec c) {
  return fma(a, b, c);
}
inline Ints load_ints(const std::int32_t* p) {
  return {_mm512_loadu_si512(p)};
}
/// Loads signed bytes, one for each lane.
inline Ints load_int8(const std::int8_t* p) {
  return {_mm512_cvtepi8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)))};
}
/// Stores the lanes as bytes, saturated.
inline void store_int8(std::int8_t* p, Ints x) {
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm512_cvtsepi32_epi8(x.v));
}

inline Bytes load_bytes(const void* p) {
  return {_mm512_loadu_si512(p)};
}
/// Loads a 16-bit word w into each lane as w | w << 12, so that bits 0, 8, 4 and 12 are in bytes 0 to 3.
inline Bytes load_spread_words(const void* p) {
  const __m512i words = _mm512_cvtepu16_epi32(_mm256_loadu_si256(static_cast<const __m256i*>(p)));
  return {_mm512_or_si512(words, _mm512_slli_epi32(words, 12))};
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
inline Bytes operator|(Bytes a, Bytes b) {
  return {_mm512_or_si512(a.v, b.v)};
}
inline Bytes operator^(Bytes a, Bytes b) {
  return {_mm512_xor_si512(a.v, b.v)};
}
inline Bytes operator+(Bytes a, Bytes b) {
  return {_mm512_add_epi8(a.v, b.v)};
}
inline Bytes set1_byte(std::uint8_t x) {
  return {_mm512_set1_epi8(static_cast<char>(x))};
}
/// Loads one byte for each lane and repeats it in the lane's four bytes.
inline Bytes load_spread_bytes(const void* p) {
  const __m512i lanes = _mm512_cvtepu8_epi32(_mm_loadu_si128(static_cast<const __m128i*>(p)));
  return {_mm512_shuffle_epi8(lanes, _mm512_set4_epi32(0x0C0C0C0C, 0x08080808, 0x04040404, 0))};
}
/// Factors as scaled takes them. scaled multiplies each byte by the factor of its lane; no product is above 255.
struct Factors {
  __m512i v;
};
inline Factors factors_of(Bytes spread) {
  return {_mm512_and_si512(spread.v, _mm512_set1_epi16(0xFF))};
}
inline Bytes scaled(Bytes x, Factors factors) {
  return {_mm512_mullo_epi16(x.v, factors.v)};  // the lower byte's product has no carry into the upper one
}
/// Returns (each byte << left, or >> -left) & mask. The mask must not cover bits that come from a neighbouring byte.
template <int mask>
inline Bytes bits_of(Bytes x, int left) {
  using Words = std::uint32_t __attribute__((vector_size(64)));
  const auto words = reinterpret_cast<Words>(x.v);
  const auto moved = reinterpret_cast<__m512i>(left >= 0 ? words << left : words >> -left);
  return {_mm512_and_si512(moved, _mm512_set1_epi8(mask))};
}
/// Returns a table of 16 bytes as look_up takes it. look_up returns table[b] for each byte b, which is below 16.
inline Bytes repeated(const void* table) {
  return {_mm512_broadcast_i32x4(_mm_loadu_si128(static_cast<const __m128i*>(table)))};
}
inline Bytes look_up(Bytes table, Bytes indices) {
  return {_mm512_shuffle_epi8(table.v, indices.v)};
}
inline __m512i broadcast_four(const std::int8_t* p) {
  std::int32_t four;
  __builtin_memcpy(&four, p, sizeof(four));
  return _mm512_set1_epi32(four);
}

// Dots<bits> multiplies unsigned weights of `bits` bits by x, signed integers from -127 to 127:
//
//   kXBytes, store_x(p, x)    bytes per column of x; stores the lanes of x in this size
//   Quad, quad_at(p)          four columns of x, repeated in all lanes
//   Weights                   four columns of a row in each lane
//   weights_of(bytes)         makes Weights from bytes of values
//   unpacked_at(p), unpack(p, bytes)   load from scratch and store to it, with kUnpackedBytes bytes per weight
//   Sums, add(sums, w, x)     adds to each lane the dot of its four columns; exact
//   product(w, x)             returns the Sums of one step (only without kSumsAreDots)
//   total(dots, sums)         returns dots plus sums, lane by lane. With kSumsAreDots, Sums are Ints and never
//                             overflow; without, they hold kStepsOfSums steps of four columns.
#if defined(__AVX512VNNI__)
constexpr int kQuantizedRows = 8;  // 24 dots, 3 vectors of w, 1 broadcast: 28 of 32 registers
constexpr int kQuantizedPanels = 3;

template <int bits>
struct Dots {
  static constexpr int kBits = bits;
  static constexpr int kXBytes = 1;
  static constexpr int kUnpackedBytes = 1;
  static constexpr bool kSumsAreDots = true;
  using Quad = Bytes;
  using Weights = Bytes;
  using Sums = Ints;

  static void store_x(std::int8_t* p, Ints x) { store_int8(p, x); }
  static Quad quad_at(const std::int8_t* p) { return {broadcast_four(p)}; }
  static Weights weights_of(Bytes w) { return w; }
  static Weights unpacked_at(const void* p) { return load_bytes(p); }
  static void unpack(void* p, Bytes w) { store_bytes(p, w); }
  static void add(Sums& sums, Weights w, Quad x) {
    // Not the intrinsic, because GCC 12 copies every sum twice around it.
    asm("vpdpbusd %2, %1, %0" : "+v"(sums.v) : "v"(w.v), "v"(x.v));
  }
};

using BoundedDots = Dots<8>;
#else
constexpr int kQuantizedRows = 4;  // 16 dots, 8 halves of vectors of w, 1 broadcast: 25 of 32 registers
constexpr int kQuantizedPanels = 4;

/// Dots for up to 6 bits: 16-bit sums, to which each step adds two products.
template <int bits>
struct Dots {
  static constexpr int kBits = bits;
  static constexpr int kXBytes = 1;
  static constexpr int kUnpackedBytes = 1;
  static constexpr bool kSumsAreDots = false;
  /// With 2 and 3 bits more steps would fit, but files have groups of 16 columns.
  static constexpr int kStepsOfSums = bits < 4 ? 4 : 32767 / (2 * 127 * ((1 << bits) - 1));
  using Quad = Bytes;
  using Weights = Bytes;
  struct Sums {
    __m512i v;
  };

  static void store_x(std::int8_t* p, Ints x) { store_int8(p, x); }
  static Quad quad_at(const std::int8_t* p) { return {broadcast_four(p)}; }
  static Weights weights_of(Bytes w) { return w; }
  static Weights unpacked_at(const void* p) { return load_bytes(p); }
  static void unpack(void* p, Bytes w) { store_bytes(p, w); }
  static Sums product(Weights w, Quad x) { return {_mm512_maddubs_epi16(w.v, x.v)}; }
  static void add(Sums& sums, Weights w, Quad x) {
    // Inline assembly keeps the two instructions together; otherwise GCC computes all products first and spills them.
    __m512i product;
    asm("vpmaddubsw %3, %2, %1\n\tvpaddw %1, %0, %0" : "+v"(sums.v), "=&v"(product) : "v"(w.v), "v"(x.v));
  }
  static Ints total(Ints dots, Sums sums) {
    return {_mm512_add_epi32(dots.v, _mm512_madd_epi16(sums.v, _mm512_set1_epi16(1)))};
  }
};

/// Dots for 8 bits: 16-bit integers in two halves, the first and third column of each four, and the second and fourth.
template <>
struct Dots<8> {
  static constexpr int kBits = 8;
  static constexpr int kXBytes = 2;
  static constexpr int kUnpackedBytes = 2;
  static constexpr bool kSumsAreDots = true;
  struct Weights {
    __m512i even;
    __m512i odd;
  };
  using Quad = Weights;
  using Sums = Ints;

  static void store_x(std::int8_t* p, Ints x) {
    const __m256i words = _mm512_cvtsepi32_epi16(x.v);
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(p),
                        _mm256_shufflehi_epi16(_mm256_shufflelo_epi16(words, 0xD8), 0xD8));
  }
  static Quad quad_at(const std::int8_t* p) { return {broadcast_four(p), broadcast_four(p + 4)}; }
  static Weights weights_of(Bytes w) {
    return {_mm512_and_si512(w.v, _mm512_set1_epi16(0xFF)), _mm512_srli_epi16(w.v, 8)};
  }
  static Weights unpacked_at(const void* p) {
    return {_mm512_loadu_si512(p), _mm512_loadu_si512(static_cast<const char*>(p) + sizeof(__m512i))};
  }
  static void unpack(void* p, Bytes w) {
    const Weights words = weights_of(w);
    _mm512_storeu_si512(p, words.even);
    _mm512_storeu_si512(static_cast<char*>(p) + sizeof(__m512i), words.odd);
  }
  static void add_pairs(Sums& sums, __m512i w, __m512i x) {
    __m512i product;
    asm("vpmaddwd %3, %2, %1\n\tvpaddd %1, %0, %0" : "+v"(sums.v), "=&v"(product) : "v"(w), "v"(x));
  }
  static void add(Sums& sums, Weights w, Quad x) {
    add_pairs(sums, w.even, x.even);
    add_pairs(sums, w.odd, x.odd);
  }
};

/// Dots for 8 bits if pairs of x are bounded (QuantizedFormat::pairs_bounded): the sum of two products fits 16 bits.
struct BoundedDots {
  static constexpr int kBits = 8;
  static constexpr int kXBytes = 1;
  static constexpr int kUnpackedBytes = 1;
  static constexpr bool kSumsAreDots = true;
  using Quad = Bytes;
  using Weights = Bytes;
  using Sums = Ints;

  static void store_x(std::int8_t* p, Ints x) { store_int8(p, x); }
  static Quad quad_at(const std::int8_t* p) { return {broadcast_four(p)}; }
  static Weights weights_of(Bytes w) { return w; }
  static void add(Sums& sums, Weights w, Quad x) {
    __m512i product;
    asm("vpmaddubsw %3, %2, %1\n\tvpmaddwd %4, %1, %1\n\tvpaddd %1, %0, %0"
        : "+v"(sums.v), "=&v"(product)
        : "v"(w.v), "v"(x.v), "v"(_mm512_set1_epi16(1)));
  }
};
#endif

}  // namespace pagoda::kernels::PAGODA_SIMD

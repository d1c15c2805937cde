#pragma once

/// Eight 32-bit lanes. ints_avx512.hpp describes the functions.

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
inline Ints load_ints(const std::int32_t* p) {
  return {_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p))};
}
inline Ints load_int8(const std::int8_t* p) {
  return {_mm256_cvtepi8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p)))};
}
inline void store_int8(std::int8_t* p, Ints x) {
  const __m128i words = _mm_packs_epi32(_mm256_castsi256_si128(x.v), _mm256_extracti128_si256(x.v, 1));
  _mm_storel_epi64(reinterpret_cast<__m128i*>(p), _mm_packs_epi16(words, words));
}

inline Bytes load_bytes(const void* p) {
  return {_mm256_loadu_si256(static_cast<const __m256i*>(p))};
}
inline Bytes load_spread_words(const void* p) {
  const __m256i words = _mm256_cvtepu16_epi32(_mm_loadu_si128(static_cast<const __m128i*>(p)));
  return {_mm256_or_si256(words, _mm256_slli_epi32(words, 12))};
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
inline Bytes operator|(Bytes a, Bytes b) {
  return {_mm256_or_si256(a.v, b.v)};
}
inline Bytes operator^(Bytes a, Bytes b) {
  return {_mm256_xor_si256(a.v, b.v)};
}
inline Bytes operator+(Bytes a, Bytes b) {
  return {_mm256_add_epi8(a.v, b.v)};
}
inline Bytes set1_byte(std::uint8_t x) {
  return {_mm256_set1_epi8(static_cast<char>(x))};
}
inline Bytes load_spread_bytes(const void* p) {
  const __m256i lanes = _mm256_cvtepu8_epi32(_mm_loadl_epi64(static_cast<const __m128i*>(p)));
  const __m256i first = _mm256_setr_epi32(0, 0x04040404, 0x08080808, 0x0C0C0C0C, 0, 0x04040404, 0x08080808, 0x0C0C0C0C);
  return {_mm256_shuffle_epi8(lanes, first)};
}
struct Factors {
  __m256i v;
};
inline Factors factors_of(Bytes spread) {
  return {_mm256_and_si256(spread.v, _mm256_set1_epi16(0xFF))};
}
inline Bytes scaled(Bytes x, Factors factors) {
  return {_mm256_mullo_epi16(x.v, factors.v)};
}
template <int mask>
inline Bytes bits_of(Bytes x, int left) {
  using Words = std::uint32_t __attribute__((vector_size(32)));
  const auto words = reinterpret_cast<Words>(x.v);
  const auto moved = reinterpret_cast<__m256i>(left >= 0 ? words << left : words >> -left);
  return {_mm256_and_si256(moved, _mm256_set1_epi8(mask))};
}
inline Bytes repeated(const void* table) {
  return {_mm256_broadcastsi128_si256(_mm_loadu_si128(static_cast<const __m128i*>(table)))};
}
inline Bytes look_up(Bytes table, Bytes indices) {
  return {_mm256_shuffle_epi8(table.v, indices.v)};
}
inline __m256i broadcast_four(const std::int8_t* p) {
  std::int32_t four;
  __builtin_memcpy(&four, p, sizeof(four));
  return _mm256_set1_epi32(four);
}

#if defined(__AVXVNNI__)
constexpr int kQuantizedRows = 3;  // 6 dots, 6 sums, 2 vectors of w, 1 broadcast: 15 of 16 registers
constexpr int kQuantizedPanels = 1;

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
  static void add(Sums& sums, Weights w, Quad x) { sums.v = _mm256_dpbusd_avx_epi32(sums.v, w.v, x.v); }
};

using BoundedDots = Dots<8>;
#else
constexpr int kQuantizedRows = 4;  // 8 dots, 4 halves of vectors of w, 1 broadcast, 1 product: 14 of 16 registers
constexpr int kQuantizedPanels = 1;

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
    __m256i v;
  };

  static void store_x(std::int8_t* p, Ints x) { store_int8(p, x); }
  static Quad quad_at(const std::int8_t* p) { return {broadcast_four(p)}; }
  static Weights weights_of(Bytes w) { return w; }
  static Weights unpacked_at(const void* p) { return load_bytes(p); }
  static void unpack(void* p, Bytes w) { store_bytes(p, w); }
  static Sums product(Weights w, Quad x) { return {_mm256_maddubs_epi16(w.v, x.v)}; }
  static void add(Sums& sums, Weights w, Quad x) {
    // Inline assembly keeps the two instructions together; otherwise GCC computes all products first and spills them.
    __m256i product;
    asm("vpmaddubsw %3, %2, %1\n\tvpaddw %1, %0, %0" : "+x"(sums.v), "=&x"(product) : "x"(w.v), "x"(x.v));
  }
  static Ints total(Ints dots, Sums sums) {
    return {_mm256_add_epi32(dots.v, _mm256_madd_epi16(sums.v, _mm256_set1_epi16(1)))};
  }
};

template <>
struct Dots<8> {
  static constexpr int kBits = 8;
  static constexpr int kXBytes = 2;
  static constexpr int kUnpackedBytes = 2;
  static constexpr bool kSumsAreDots = true;
  struct Weights {
    __m256i even;
    __m256i odd;
  };
  using Quad = Weights;
  using Sums = Ints;

  static void store_x(std::int8_t* p, Ints x) {
    const __m128i words = _mm_packs_epi32(_mm256_castsi256_si128(x.v), _mm256_extracti128_si256(x.v, 1));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm_shufflehi_epi16(_mm_shufflelo_epi16(words, 0xD8), 0xD8));
  }
  static Quad quad_at(const std::int8_t* p) { return {broadcast_four(p), broadcast_four(p + 4)}; }
  static Weights weights_of(Bytes w) {
    return {_mm256_and_si256(w.v, _mm256_set1_epi16(0xFF)), _mm256_srli_epi16(w.v, 8)};
  }
  static Weights unpacked_at(const void* p) {
    const auto* const halves = static_cast<const __m256i*>(p);
    return {_mm256_loadu_si256(halves), _mm256_loadu_si256(halves + 1)};
  }
  static void unpack(void* p, Bytes w) {
    const Weights words = weights_of(w);
    _mm256_storeu_si256(static_cast<__m256i*>(p), words.even);
    _mm256_storeu_si256(static_cast<__m256i*>(p) + 1, words.odd);
  }
  static void add_pairs(Sums& sums, __m256i w, __m256i x) {
    __m256i product;
    asm("vpmaddwd %3, %2, %1\n\tvpaddd %1, %0, %0" : "+x"(sums.v), "=&x"(product) : "x"(w), "x"(x));
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
    __m256i product;
    asm("vpmaddubsw %3, %2, %1\n\tvpmaddwd %4, %1, %1\n\tvpaddd %1, %0, %0"
        : "+x"(sums.v), "=&x"(product)
        : "x"(w.v), "x"(x.v), "x"(_mm256_set1_epi16(1)));
  }
};
#endif

}  // namespace pagoda::kernels::PAGODA_SIMD

#pragma once

/// Four 32-bit lanes in the compiler's generic vectors. ints_avx512.hpp describes the functions.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>

#include "kernels/cpu/simd/vec_portable.hpp"

namespace pagoda::kernels::PAGODA_SIMD {

constexpr int kQuantizedRows = 2;
constexpr int kQuantizedPanels = 1;

struct Ints {
  Bits v;
};
struct Bytes {
  std::uint8_t __attribute__((vector_size(16))) v;
};

inline Ints set1_int(std::int32_t x) {
  return {Bits{x, x, x, x}};
}
/// Type for sums of integers, which wrap around as in vector instructions. Values that are not finite give arbitrary
/// integers, whose sums may overflow.
using Unsigned = std::uint32_t __attribute__((vector_size(16)));
inline Ints operator+(Ints a, Ints b) {
  return {reinterpret_cast<Bits>(reinterpret_cast<Unsigned>(a.v) + reinterpret_cast<Unsigned>(b.v))};
}
inline std::int32_t sum(Ints x) {
  const auto v = reinterpret_cast<Unsigned>(x.v);
  return static_cast<std::int32_t>(v[0] + v[1] + v[2] + v[3]);
}
inline Ints round_to_ints(Vec x) {
  const Vec biased = x + set1(12582912.0F);  // 1.5 * 2^23: the fraction bits are the integer
  Ints rounded;
  std::memcpy(&rounded.v, &biased.v, sizeof(rounded.v));
  return {rounded.v - 0x4B400000};
}
inline Vec to_floats(Ints x) {
  return {__builtin_convertvector(x.v, Floats)};
}
inline Vec fused(Vec a, Vec b, Vec c) {
  for (int i = 0; i < kLanes; ++i) c.v[i] = std::fma(a.v[i], b.v[i], c.v[i]);
  return c;
}
inline Ints load_ints(const std::int32_t* p) {
  return {Bits{p[0], p[1], p[2], p[3]}};
}
inline Ints load_int8(const std::int8_t* p) {
  return {Bits{p[0], p[1], p[2], p[3]}};
}
inline void store_int8(std::int8_t* p, Ints x) {
  for (int i = 0; i < kLanes; ++i) p[i] = static_cast<std::int8_t>(std::clamp(x.v[i], -128, 127));
}

inline Bytes load_bytes(const void* p) {
  Bytes x;
  std::memcpy(&x.v, p, sizeof(x.v));
  return x;
}
inline Bytes load_spread_words(const void* p) {
  std::uint16_t words[kLanes];
  std::memcpy(words, p, sizeof(words));
  std::uint32_t spread[kLanes];
  for (int i = 0; i < kLanes; ++i) spread[i] = words[i] | std::uint32_t{words[i]} << 12;
  return load_bytes(spread);
}
inline void store_bytes(void* p, Bytes x) {
  std::memcpy(p, &x.v, sizeof(x.v));
}
inline Bytes low_halves(Bytes x) {
  return {x.v & 0x0F};
}
inline Bytes high_halves(Bytes x) {
  return {x.v >> 4};
}

inline Bytes operator|(Bytes a, Bytes b) {
  return {a.v | b.v};
}
inline Bytes operator^(Bytes a, Bytes b) {
  return {a.v ^ b.v};
}
inline Bytes operator+(Bytes a, Bytes b) {
  return {a.v + b.v};
}
inline Bytes set1_byte(std::uint8_t x) {
  Bytes all;
  std::memset(&all.v, x, sizeof(all.v));
  return all;
}
inline Bytes load_spread_bytes(const void* p) {
  const auto* const from = static_cast<const std::uint8_t*>(p);
  Bytes all;
  for (int i = 0; i < 16; ++i) all.v[i] = from[i / 4];
  return all;
}
using Factors = Bytes;
inline Factors factors_of(Bytes spread) {
  return spread;
}
inline Bytes scaled(Bytes x, Factors factors) {
  return {x.v * factors.v};
}
template <int mask>
inline Bytes bits_of(Bytes x, int left) {
  return {(left >= 0 ? x.v << left : x.v >> -left) & std::uint8_t{mask}};
}
inline Bytes repeated(const void* table) {
  return load_bytes(table);
}
inline Bytes look_up(Bytes table, Bytes indices) {
  for (int i = 0; i < 16; ++i) indices.v[i] = table.v[indices.v[i]];
  return indices;
}

template <int bits>
struct Dots {
  static constexpr int kBits = bits;
  static constexpr int kXBytes = 1;
  static constexpr int kUnpackedBytes = 1;
  static constexpr bool kSumsAreDots = true;
  using Weights = Bytes;
  struct Quad {
    std::int8_t v[4];
  };
  using Sums = Ints;

  static void store_x(std::int8_t* p, Ints x) { store_int8(p, x); }
  static Quad quad_at(const std::int8_t* p) {
    Quad x;
    std::memcpy(x.v, p, sizeof(x.v));
    return x;
  }
  static Weights weights_of(Bytes w) { return w; }
  static Weights unpacked_at(const void* p) { return load_bytes(p); }
  static void unpack(void* p, Bytes w) { store_bytes(p, w); }
  static void add(Sums& sums, Weights w, Quad x) {
    Unsigned lanes;
    std::memcpy(&lanes, &w.v, sizeof(lanes));
    for (int i = 0; i < 4; ++i) {
      const Unsigned products = ((lanes >> (8 * i)) & 0xFF) * static_cast<std::uint32_t>(x.v[i]);
      sums = sums + Ints{reinterpret_cast<Bits>(products)};
    }
  }
};

/// Dots for 8 bits if pairs of x are bounded (QuantizedFormat::pairs_bounded).
using BoundedDots = Dots<8>;

}  // namespace pagoda::kernels::PAGODA_SIMD

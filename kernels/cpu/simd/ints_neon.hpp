#pragma once

/// Four 32-bit lanes of NEON. ints_avx512.hpp describes the functions.

#include <cstdint>
#include <cstring>

#include "kernels/cpu/simd/vec_neon.hpp"

namespace pagoda::kernels::PAGODA_SIMD {

constexpr int kQuantizedRows = 4;  // 16 dots, 4 vectors of w, 2 of x: 22 of 32 registers
constexpr int kQuantizedPanels = 1;

struct Ints {
  int32x4_t v;
};
struct Bytes {
  uint8x16_t v;
};

inline Ints set1_int(std::int32_t x) {
  return {vdupq_n_s32(x)};
}
inline Ints operator+(Ints a, Ints b) {
  return {vaddq_s32(a.v, b.v)};
}
inline std::int32_t sum(Ints x) {
  return vaddvq_s32(x.v);
}
inline Ints round_to_ints(Vec x) {
  return {vcvtnq_s32_f32(x.v)};
}
inline Vec to_floats(Ints x) {
  return {vcvtq_f32_s32(x.v)};
}
inline Vec fused(Vec a, Vec b, Vec c) {
  return fma(a, b, c);
}
inline Ints load_ints(const std::int32_t* p) {
  return {vld1q_s32(p)};
}
inline Ints load_int8(const std::int8_t* p) {
  std::uint32_t four;
  std::memcpy(&four, p, sizeof(four));
  return {vmovl_s16(vget_low_s16(vmovl_s8(vreinterpret_s8_u32(vdup_n_u32(four)))))};
}
inline void store_int8(std::int8_t* p, Ints x) {
  const int16x4_t words = vqmovn_s32(x.v);
  const int8x8_t bytes = vqmovn_s16(vcombine_s16(words, words));
  std::memcpy(p, &bytes, kLanes);
}

inline Bytes load_bytes(const void* p) {
  return {vld1q_u8(static_cast<const std::uint8_t*>(p))};
}
inline Bytes load_spread_words(const void* p) {
  const uint32x4_t words = vmovl_u16(vld1_u16(static_cast<const std::uint16_t*>(p)));
  return {vreinterpretq_u8_u32(vorrq_u32(words, vshlq_n_u32(words, 12)))};
}
inline void store_bytes(void* p, Bytes x) {
  vst1q_u8(static_cast<std::uint8_t*>(p), x.v);
}
inline Bytes low_halves(Bytes x) {
  return {vandq_u8(x.v, vdupq_n_u8(0x0F))};
}
inline Bytes high_halves(Bytes x) {
  return {vshrq_n_u8(x.v, 4)};
}
inline Bytes operator|(Bytes a, Bytes b) {
  return {vorrq_u8(a.v, b.v)};
}
inline Bytes operator^(Bytes a, Bytes b) {
  return {veorq_u8(a.v, b.v)};
}
inline Bytes operator+(Bytes a, Bytes b) {
  return {vaddq_u8(a.v, b.v)};
}
inline Bytes set1_byte(std::uint8_t x) {
  return {vdupq_n_u8(x)};
}
inline Bytes load_spread_bytes(const void* p) {
  static constexpr std::uint8_t kLanesOfBytes[16] = {0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3};
  std::uint32_t four;
  std::memcpy(&four, p, sizeof(four));
  return {vqtbl1q_u8(vreinterpretq_u8_u32(vdupq_n_u32(four)), vld1q_u8(kLanesOfBytes))};
}
using Factors = Bytes;
inline Factors factors_of(Bytes spread) {
  return spread;
}
inline Bytes scaled(Bytes x, Factors factors) {
  return {vmulq_u8(x.v, factors.v)};
}
template <int mask>
inline Bytes bits_of(Bytes x, int left) {
  return {vandq_u8(vshlq_u8(x.v, vdupq_n_s8(static_cast<std::int8_t>(left))), vdupq_n_u8(mask))};
}
inline Bytes repeated(const void* table) {
  return load_bytes(table);
}
inline Bytes look_up(Bytes table, Bytes indices) {
  return {vqtbl1q_u8(table.v, indices.v)};
}
inline int8x16_t broadcast_four(const std::int8_t* p) {
  std::uint32_t four;
  std::memcpy(&four, p, sizeof(four));
  return vreinterpretq_s8_u32(vdupq_n_u32(four));
}

template <int bits>
struct Dots {
  static constexpr int kBits = bits;
  static constexpr int kXBytes = 1;
  static constexpr int kUnpackedBytes = 1;
  static constexpr bool kSumsAreDots = true;
  using Sums = Ints;

  static void store_x(std::int8_t* p, Ints x) { store_int8(p, x); }
  static auto unpacked_at(const void* p) { return weights_of(load_bytes(p)); }
  static void unpack(void* p, Bytes w) { store_bytes(p, w); }

#if defined(__ARM_FEATURE_DOTPROD)
  // The instruction multiplies signed bytes: it gets weights minus 128, and 128 times x is added.
  using Weights = int8x16_t;
  struct Quad {
    int8x16_t x;
    int32x4_t minus_128_x;
  };
  static Weights weights_of(Bytes w) {
    return vreinterpretq_s8_u8(veorq_u8(w.v, vdupq_n_u8(0x80)));
  }
  static Quad quad_at(const std::int8_t* p) {
    const int8x16_t x = broadcast_four(p);
    return {x, vdotq_s32(vdupq_n_s32(0), x, vdupq_n_s8(-128))};
  }
  static void add(Sums& sums, Weights w, Quad quad) {
    sums.v = vdotq_s32(vsubq_s32(sums.v, quad.minus_128_x), w, quad.x);
  }
#else
  // A product is at most 255 * 127, which fits 16 bits.
  using Weights = Bytes;
  using Quad = int16x8_t;
  static Weights weights_of(Bytes w) {
    return w;
  }
  static Quad quad_at(const std::int8_t* p) {
    return vmovl_s8(vget_low_s8(broadcast_four(p)));
  }
  static void add(Sums& sums, Weights w, Quad x) {
    const int16x8_t low = vmulq_s16(vreinterpretq_s16_u16(vmovl_u8(vget_low_u8(w.v))), x);
    const int16x8_t high = vmulq_s16(vreinterpretq_s16_u16(vmovl_u8(vget_high_u8(w.v))), x);
    sums.v = vaddq_s32(sums.v, vpaddq_s32(vpaddlq_s16(low), vpaddlq_s16(high)));
  }
#endif
};

/// Dots for 8 bits if pairs of x are bounded (QuantizedFormat::pairs_bounded).
using BoundedDots = Dots<8>;

}  // namespace pagoda::kernels::PAGODA_SIMD

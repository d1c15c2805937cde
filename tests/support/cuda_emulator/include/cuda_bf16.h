#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

#include "cuda_emulator/half_operators.hpp"
#include "cuda_emulator/types.hpp"

namespace cuda_emulator {

struct __nv_bfloat16_raw {
  unsigned short x;
};
struct __nv_bfloat162_raw {
  unsigned short x;
  unsigned short y;
};

/// The upper half of a float; conversions round to nearest even, NaN becomes 0x7FFF as on the device.
struct __nv_bfloat16 {
  __nv_bfloat16() = default;
  __nv_bfloat16(float value) {
    const auto bits = std::bit_cast<std::uint32_t>(value);
    bits_ = std::isnan(value) ? 0x7FFF : static_cast<unsigned short>((bits + 0x7FFFU + (bits >> 16 & 1U)) >> 16);
  }
  __nv_bfloat16(int value) : __nv_bfloat16(static_cast<float>(value)) {}
  __nv_bfloat16(__nv_bfloat16_raw raw) : bits_(raw.x) {}
  operator float() const { return std::bit_cast<float>(static_cast<std::uint32_t>(bits_) << 16); }
  operator __nv_bfloat16_raw() const { return {bits_}; }

 private:
  unsigned short bits_;
};
using nv_bfloat16 = __nv_bfloat16;

struct alignas(4) __nv_bfloat162 {
  __nv_bfloat16 x;
  __nv_bfloat16 y;
  __nv_bfloat162() = default;
  __nv_bfloat162(__nv_bfloat16 low, __nv_bfloat16 high) : x(low), y(high) {}
};
using nv_bfloat162 = __nv_bfloat162;

PAGODA_EMULATED_HALF_OPERATORS(__nv_bfloat16, __nv_bfloat162)

inline __nv_bfloat16 __float2bfloat16(float x) {
  return {x};
}
inline __nv_bfloat16 __float2bfloat16_rn(float x) {
  return {x};
}
inline float __bfloat162float(__nv_bfloat16 x) {
  return x;
}
inline __nv_bfloat162 __halves2bfloat162(__nv_bfloat16 low, __nv_bfloat16 high) {
  return {low, high};
}
inline __nv_bfloat162 __bfloat162bfloat162(__nv_bfloat16 x) {
  return {x, x};
}
inline __nv_bfloat162 __float2bfloat162_rn(float x) {
  return {x, x};
}
inline __nv_bfloat162 __floats2bfloat162_rn(float low, float high) {
  return {low, high};
}
inline __nv_bfloat162 __float22bfloat162_rn(float2 x) {
  return {x.x, x.y};
}
inline float2 __bfloat1622float2(__nv_bfloat162 x) {
  return {x.x, x.y};
}
inline __nv_bfloat16 __low2bfloat16(__nv_bfloat162 x) {
  return x.x;
}
inline __nv_bfloat16 __high2bfloat16(__nv_bfloat162 x) {
  return x.y;
}
inline float __low2float(__nv_bfloat162 x) {
  return x.x;
}
inline float __high2float(__nv_bfloat162 x) {
  return x.y;
}
inline unsigned short __bfloat16_as_ushort(__nv_bfloat16 x) {
  return std::bit_cast<unsigned short>(x);
}
inline __nv_bfloat16 __ushort_as_bfloat16(unsigned short x) {
  return std::bit_cast<__nv_bfloat16>(x);
}

}  // namespace cuda_emulator

using namespace cuda_emulator;  // NOLINT: the toolkit's names are global

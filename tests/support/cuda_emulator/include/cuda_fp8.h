#pragma once

/// The OCP 8-bit floats: e4m3 (no infinities, largest 448) and e5m2 (largest finite 57344).

#include <cmath>
#include <cstdint>

#include "cuda_bf16.h"
#include "cuda_fp16.h"

namespace cuda_emulator {

using __nv_fp8_storage_t = unsigned char;
using __nv_fp8x2_storage_t = unsigned short;
using __nv_fp8x4_storage_t = unsigned int;
enum __nv_saturation_t { __NV_NOSAT, __NV_SATFINITE };
enum __nv_fp8_interpretation_t { __NV_E4M3, __NV_E5M2 };

/// The value of a code: sign, exponent of `exponent_bits`, mantissa.
inline float fp8_value(__nv_fp8_storage_t code, __nv_fp8_interpretation_t kind) {
  const int mantissa_bits = kind == __NV_E4M3 ? 3 : 2;
  const int bias = kind == __NV_E4M3 ? 7 : 15;
  const int mantissa = code & ((1 << mantissa_bits) - 1);
  const int exponent = code >> mantissa_bits & (kind == __NV_E4M3 ? 15 : 31);
  float magnitude = 0.0F;
  if (kind == __NV_E4M3 && exponent == 15 && mantissa == 7) {
    magnitude = NAN;
  } else if (kind == __NV_E5M2 && exponent == 31) {
    magnitude = mantissa == 0 ? INFINITY : NAN;
  } else if (exponent == 0) {
    magnitude = std::ldexp(static_cast<float>(mantissa), 1 - bias - mantissa_bits);
  } else {
    magnitude = std::ldexp(static_cast<float>(mantissa + (1 << mantissa_bits)), exponent - bias - mantissa_bits);
  }
  return code & 0x80 ? -magnitude : magnitude;
}

/// The nearest code, ties to even. Codes of finite values are in order of magnitude.
inline __nv_fp8_storage_t __nv_cvt_float_to_fp8(float x, __nv_saturation_t saturation, __nv_fp8_interpretation_t kind) {
  if (std::isnan(x)) return 0x7F;
  const unsigned char sign = std::signbit(x) ? 0x80 : 0x00;
  const unsigned char largest = kind == __NV_E4M3 ? 0x7E : 0x7B;
  const unsigned char overflow = kind == __NV_E4M3 ? 0x7F : 0x7C;
  const float magnitude = std::fabs(x);
  const float highest = fp8_value(largest, kind);
  const float step = highest - fp8_value(static_cast<unsigned char>(largest - 1), kind);
  if (magnitude > highest) {
    const bool rounds_down = magnitude < highest + step / 2 || (kind == __NV_E4M3 && magnitude == highest + step / 2);
    if (saturation == __NV_SATFINITE || rounds_down) return sign | largest;
    return sign | overflow;
  }
  unsigned char low = 0;
  unsigned char high = largest;
  while (high - low > 1) {
    const auto middle = static_cast<unsigned char>((low + high) / 2);
    (fp8_value(middle, kind) <= magnitude ? low : high) = middle;
  }
  const float to_low = magnitude - fp8_value(low, kind);
  const float to_high = fp8_value(high, kind) - magnitude;
  const bool take_low = to_low < to_high || (to_low == to_high && (low & 1) == 0);
  return sign | (take_low ? low : high);
}

inline __nv_fp8x2_storage_t __nv_cvt_float2_to_fp8x2(float2 x, __nv_saturation_t saturation,
                                                     __nv_fp8_interpretation_t kind) {
  return static_cast<unsigned short>(__nv_cvt_float_to_fp8(x.x, saturation, kind) |
                                     __nv_cvt_float_to_fp8(x.y, saturation, kind) << 8);
}
inline __half_raw __nv_cvt_fp8_to_halfraw(__nv_fp8_storage_t x, __nv_fp8_interpretation_t kind) {
  return __half(fp8_value(x, kind));
}
inline __half2_raw __nv_cvt_fp8x2_to_halfraw2(__nv_fp8x2_storage_t x, __nv_fp8_interpretation_t kind) {
  return {__nv_cvt_fp8_to_halfraw(static_cast<unsigned char>(x), kind).x,
          __nv_cvt_fp8_to_halfraw(static_cast<unsigned char>(x >> 8), kind).x};
}
inline __nv_fp8_storage_t __nv_cvt_halfraw_to_fp8(__half_raw x, __nv_saturation_t saturation,
                                                  __nv_fp8_interpretation_t kind) {
  return __nv_cvt_float_to_fp8(__half(x), saturation, kind);
}

template <__nv_fp8_interpretation_t kind>
struct EmulatedFp8 {
  __nv_fp8_storage_t __x;
  EmulatedFp8() = default;
  explicit EmulatedFp8(float x) : __x(__nv_cvt_float_to_fp8(x, __NV_SATFINITE, kind)) {}
  explicit EmulatedFp8(__half x) : EmulatedFp8(static_cast<float>(x)) {}
  explicit EmulatedFp8(__nv_bfloat16 x) : EmulatedFp8(static_cast<float>(x)) {}
  explicit operator float() const { return fp8_value(__x, kind); }
  explicit operator __half() const { return __half(fp8_value(__x, kind)); }
};
using __nv_fp8_e4m3 = EmulatedFp8<__NV_E4M3>;
using __nv_fp8_e5m2 = EmulatedFp8<__NV_E5M2>;

}  // namespace cuda_emulator

using namespace cuda_emulator;  // NOLINT: the toolkit's names are global

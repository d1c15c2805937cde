#pragma once

#include <bit>
#include <cmath>

#include "cuda_emulator/half_operators.hpp"
#include "cuda_emulator/types.hpp"

namespace cuda_emulator {

struct __half_raw {
  unsigned short x;
};
struct __half2_raw {
  unsigned short x;
  unsigned short y;
};

/// IEEE binary16; conversions round to nearest even.
struct __half {
  __half() = default;
  __half(float value) : bits_(std::bit_cast<unsigned short>(static_cast<_Float16>(value))) {}
  __half(double value) : bits_(std::bit_cast<unsigned short>(static_cast<_Float16>(value))) {}
  __half(int value) : __half(static_cast<float>(value)) {}
  __half(__half_raw raw) : bits_(raw.x) {}
  operator float() const { return static_cast<float>(std::bit_cast<_Float16>(bits_)); }
  operator __half_raw() const { return {bits_}; }

 private:
  unsigned short bits_;
};
using half = __half;

struct alignas(4) __half2 {
  __half x;
  __half y;
  __half2() = default;
  __half2(__half low, __half high) : x(low), y(high) {}
  __half2(__half2_raw raw) : x(__half_raw{raw.x}), y(__half_raw{raw.y}) {}
};
using half2 = __half2;

PAGODA_EMULATED_HALF_OPERATORS(__half, __half2)

inline __half __float2half(float x) {
  return {x};
}
inline __half __float2half_rn(float x) {
  return {x};
}
inline float __half2float(__half x) {
  return x;
}
inline __half2 __halves2half2(__half low, __half high) {
  return {low, high};
}
inline __half2 make_half2(__half low, __half high) {
  return {low, high};
}
inline __half2 __half2half2(__half x) {
  return {x, x};
}
inline __half2 __float2half2_rn(float x) {
  return {x, x};
}
inline __half2 __floats2half2_rn(float low, float high) {
  return {low, high};
}
inline __half2 __float22half2_rn(float2 x) {
  return {x.x, x.y};
}
inline float2 __half22float2(__half2 x) {
  return {x.x, x.y};
}
inline __half __low2half(__half2 x) {
  return x.x;
}
inline __half __high2half(__half2 x) {
  return x.y;
}
inline float __low2float(__half2 x) {
  return x.x;
}
inline float __high2float(__half2 x) {
  return x.y;
}
inline unsigned short __half_as_ushort(__half x) {
  return std::bit_cast<unsigned short>(x);
}
inline __half __ushort_as_half(unsigned short x) {
  return std::bit_cast<__half>(x);
}
inline __half __int2half_rn(int x) {
  return {static_cast<float>(x)};
}

}  // namespace cuda_emulator

using namespace cuda_emulator;  // NOLINT: the toolkit's names are global

#pragma once

/// Arithmetic intrinsics. Fast approximations are computed as exactly as the C library does.

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <type_traits>

#include <math.h>  // device code uses the names without std::

#include "cuda_emulator/types.hpp"

// The C library has its own functions of these names.
#define __expf(x) ::std::exp(static_cast<float>(x))
#define __exp10f(x) ::std::pow(10.0F, static_cast<float>(x))
#define __logf(x) ::std::log(static_cast<float>(x))
#define __log2f(x) ::std::log2(static_cast<float>(x))
#define __log10f(x) ::std::log10(static_cast<float>(x))
#define __sinf(x) ::std::sin(static_cast<float>(x))
#define __cosf(x) ::std::cos(static_cast<float>(x))
#define __powf(x, y) ::std::pow(static_cast<float>(x), static_cast<float>(y))
#define __sincosf(x, s, c) ::cuda_emulator::sine_and_cosine(x, s, c)

namespace cuda_emulator {

inline void sine_and_cosine(float x, float* sine, float* cosine) {
  *sine = std::sin(x);
  *cosine = std::cos(x);
}

template <class A, class B>
requires(std::is_arithmetic_v<A>&& std::is_arithmetic_v<B>) constexpr std::common_type_t<A, B> min(A a, B b) {
  using T = std::common_type_t<A, B>;
  return static_cast<T>(b) < static_cast<T>(a) ? static_cast<T>(b) : static_cast<T>(a);
}
template <class A, class B>
requires(std::is_arithmetic_v<A>&& std::is_arithmetic_v<B>) constexpr std::common_type_t<A, B> max(A a, B b) {
  using T = std::common_type_t<A, B>;
  return static_cast<T>(a) < static_cast<T>(b) ? static_cast<T>(b) : static_cast<T>(a);
}

inline float rsqrtf(float x) {
  return 1.0F / std::sqrt(x);
}
inline float __frsqrt_rn(float x) {
  return 1.0F / std::sqrt(x);
}
inline float __fsqrt_rn(float x) {
  return std::sqrt(x);
}
inline float __frcp_rn(float x) {
  return 1.0F / x;
}
inline float __fdividef(float a, float b) {
  return a / b;
}
inline float __fdiv_rn(float a, float b) {
  return a / b;
}
inline float __fadd_rn(float a, float b) {
  return a + b;
}
inline float __fsub_rn(float a, float b) {
  return a - b;
}
inline float __fmul_rn(float a, float b) {
  return a * b;
}
inline float __fmaf_rn(float a, float b, float c) {
  return std::fma(a, b, c);
}
inline double __dadd_rn(double a, double b) {
  return a + b;
}
inline double __dmul_rn(double a, double b) {
  return a * b;
}
inline float __saturatef(float x) {
  return x > 0.0F ? (x < 1.0F ? x : 1.0F) : 0.0F;
}

/// Conversions saturate, and NaN becomes 0, as on the device.
template <class Integer>
Integer saturating_integer(double x) {
  if (std::isnan(x)) return 0;
  constexpr auto kLow = static_cast<double>(std::numeric_limits<Integer>::min());
  constexpr auto kHigh = static_cast<double>(std::numeric_limits<Integer>::max());
  if (x <= kLow) return std::numeric_limits<Integer>::min();
  if (x >= kHigh) return std::numeric_limits<Integer>::max();
  return static_cast<Integer>(x);
}
inline int __float2int_rn(float x) {
  return saturating_integer<int>(std::nearbyint(x));
}
inline int __float2int_rz(float x) {
  return saturating_integer<int>(std::trunc(x));
}
inline int __float2int_rd(float x) {
  return saturating_integer<int>(std::floor(x));
}
inline int __float2int_ru(float x) {
  return saturating_integer<int>(std::ceil(x));
}
inline unsigned int __float2uint_rn(float x) {
  return saturating_integer<unsigned int>(std::nearbyint(x));
}
inline float __int2float_rn(int x) {
  return static_cast<float>(x);
}
inline float __uint2float_rn(unsigned int x) {
  return static_cast<float>(x);
}

inline unsigned int __float_as_uint(float x) {
  return std::bit_cast<unsigned int>(x);
}
inline int __float_as_int(float x) {
  return std::bit_cast<int>(x);
}
inline float __uint_as_float(unsigned int x) {
  return std::bit_cast<float>(x);
}
inline float __int_as_float(int x) {
  return std::bit_cast<float>(x);
}
inline long long __double_as_longlong(double x) {
  return std::bit_cast<long long>(x);
}
inline double __longlong_as_double(long long x) {
  return std::bit_cast<double>(x);
}

inline int __popc(unsigned int x) {
  return std::popcount(x);
}
inline int __popcll(unsigned long long x) {
  return std::popcount(x);
}
inline int __clz(int x) {
  return std::countl_zero(static_cast<unsigned int>(x));
}
inline int __clzll(long long x) {
  return std::countl_zero(static_cast<unsigned long long>(x));
}
inline int __ffs(int x) {
  return x == 0 ? 0 : std::countr_zero(static_cast<unsigned int>(x)) + 1;
}
inline int __ffsll(long long x) {
  return x == 0 ? 0 : std::countr_zero(static_cast<unsigned long long>(x)) + 1;
}
inline unsigned int __brev(unsigned int x) {
  unsigned int reversed = 0;
  for (int i = 0; i < 32; ++i) reversed |= (x >> i & 1U) << (31 - i);
  return reversed;
}
inline unsigned int __umulhi(unsigned int a, unsigned int b) {
  return static_cast<unsigned int>(static_cast<std::uint64_t>(a) * b >> 32);
}
inline int __mulhi(int a, int b) {
  return static_cast<int>(static_cast<std::int64_t>(a) * b >> 32);
}
inline unsigned int __funnelshift_l(unsigned int low, unsigned int high, unsigned int shift) {
  const std::uint64_t both = static_cast<std::uint64_t>(high) << 32 | low;
  return static_cast<unsigned int>(both << (shift & 31U) >> 32);
}
inline unsigned int __funnelshift_r(unsigned int low, unsigned int high, unsigned int shift) {
  const std::uint64_t both = static_cast<std::uint64_t>(high) << 32 | low;
  return static_cast<unsigned int>(both >> (shift & 31U));
}
inline unsigned int __byte_perm(unsigned int low, unsigned int high, unsigned int selector) {
  const std::uint64_t both = static_cast<std::uint64_t>(high) << 32 | low;
  unsigned int result = 0;
  for (int i = 0; i < 4; ++i) {
    const unsigned int choice = selector >> (4 * i) & 0xFU;
    auto byte = static_cast<unsigned int>(both >> (8 * (choice & 7U)) & 0xFFU);
    if (choice & 8U) byte = byte & 0x80U ? 0xFFU : 0U;
    result |= byte << (8 * i);
  }
  return result;
}
/// Returns the dot product of four signed bytes, added to c.
inline int __dp4a(int a, int b, int c) {
  for (int i = 0; i < 4; ++i) {
    c += static_cast<int>(static_cast<std::int8_t>(a >> (8 * i))) * static_cast<std::int8_t>(b >> (8 * i));
  }
  return c;
}
inline unsigned int __vsub4(unsigned int a, unsigned int b) {
  unsigned int result = 0;
  for (int i = 0; i < 4; ++i) result |= (((a >> (8 * i)) - (b >> (8 * i))) & 0xFFU) << (8 * i);
  return result;
}

// Loads and stores with cache hints.
template <class T>
T __ldg(const T* address) {
  return *address;
}
template <class T>
T __ldcs(const T* address) {
  return *address;
}
template <class T>
T __ldcg(const T* address) {
  return *address;
}
template <class T>
T __ldca(const T* address) {
  return *address;
}
template <class T>
void __stcs(T* address, T value) {
  *address = value;
}
template <class T>
void __stcg(T* address, T value) {
  *address = value;
}

}  // namespace cuda_emulator

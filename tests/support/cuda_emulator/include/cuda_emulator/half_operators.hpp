#pragma once

/// Operators and intrinsics of a 16-bit float type and of its pair. They compute in float and round once.

#define PAGODA_EMULATED_HALF_OPERATORS(half, half2)                                       \
  inline half operator+(half a, half b) {                                                 \
    return half(float(a) + float(b));                                                     \
  }                                                                                       \
  inline half operator-(half a, half b) {                                                 \
    return half(float(a) - float(b));                                                     \
  }                                                                                       \
  inline half operator*(half a, half b) {                                                 \
    return half(float(a) * float(b));                                                     \
  }                                                                                       \
  inline half operator/(half a, half b) {                                                 \
    return half(float(a) / float(b));                                                     \
  }                                                                                       \
  inline half operator-(half a) {                                                         \
    return half(-float(a));                                                               \
  }                                                                                       \
  inline half& operator+=(half& a, half b) {                                              \
    return a = a + b;                                                                     \
  }                                                                                       \
  inline half& operator*=(half& a, half b) {                                              \
    return a = a * b;                                                                     \
  }                                                                                       \
  inline bool operator<(half a, half b) {                                                 \
    return float(a) < float(b);                                                           \
  }                                                                                       \
  inline bool operator>(half a, half b) {                                                 \
    return float(a) > float(b);                                                           \
  }                                                                                       \
  inline bool operator==(half a, half b) {                                                \
    return float(a) == float(b);                                                          \
  }                                                                                       \
  inline half __hadd(half a, half b) {                                                    \
    return a + b;                                                                         \
  }                                                                                       \
  inline half __hsub(half a, half b) {                                                    \
    return a - b;                                                                         \
  }                                                                                       \
  inline half __hmul(half a, half b) {                                                    \
    return a * b;                                                                         \
  }                                                                                       \
  inline half __hdiv(half a, half b) {                                                    \
    return a / b;                                                                         \
  }                                                                                       \
  inline half __hfma(half a, half b, half c) {                                            \
    return half(static_cast<float>(static_cast<double>(float(a)) * float(b) + float(c))); \
  }                                                                                       \
  inline half __hmax(half a, half b) {                                                    \
    return half(std::fmax(float(a), float(b)));                                           \
  }                                                                                       \
  inline half __hmin(half a, half b) {                                                    \
    return half(std::fmin(float(a), float(b)));                                           \
  }                                                                                       \
  inline half __habs(half a) {                                                            \
    return half(std::fabs(float(a)));                                                     \
  }                                                                                       \
  inline bool __hisnan(half a) {                                                          \
    return std::isnan(float(a));                                                          \
  }                                                                                       \
  inline half2 operator+(half2 a, half2 b) {                                              \
    return {a.x + b.x, a.y + b.y};                                                        \
  }                                                                                       \
  inline half2 operator-(half2 a, half2 b) {                                              \
    return {a.x - b.x, a.y - b.y};                                                        \
  }                                                                                       \
  inline half2 operator*(half2 a, half2 b) {                                              \
    return {a.x * b.x, a.y * b.y};                                                        \
  }                                                                                       \
  inline half2 __hadd2(half2 a, half2 b) {                                                \
    return a + b;                                                                         \
  }                                                                                       \
  inline half2 __hsub2(half2 a, half2 b) {                                                \
    return a - b;                                                                         \
  }                                                                                       \
  inline half2 __hmul2(half2 a, half2 b) {                                                \
    return a * b;                                                                         \
  }                                                                                       \
  inline half2 __hfma2(half2 a, half2 b, half2 c) {                                       \
    return {__hfma(a.x, b.x, c.x), __hfma(a.y, b.y, c.y)};                                \
  }                                                                                       \
  inline half2 __hmax2(half2 a, half2 b) {                                                \
    return {__hmax(a.x, b.x), __hmax(a.y, b.y)};                                          \
  }                                                                                       \
  inline half2 __habs2(half2 a) {                                                         \
    return {__habs(a.x), __habs(a.y)};                                                    \
  }

#pragma once

/// Four floats in the compiler's generic vectors: SSE2, NEON or plain registers. vec_avx512.hpp describes the
/// functions.

#include <cstdint>
#include <cstring>

#include "kernels/cpu/kernel_table.hpp"
#include "kernels/device.hpp"
#include "kernels/dtype.hpp"

namespace pagoda::kernels::PAGODA_SIMD {

constexpr int kLanes = 4;
constexpr int kMaxRows = 4;
constexpr int kLinearRows = 4;
constexpr int kLinearVectors = 2;
constexpr int kStreamRows = 4;
constexpr int kStreamVectors = 2;
constexpr int kPackingRows = 0;
constexpr int kRegisterTiledRows = 0;
constexpr int kRegisterTiledTile = 0;
constexpr int kWideStreamRows = 4;
constexpr int kMaxSums = 8;  // sums that fit registers beside a few other vectors
constexpr bool kDotsBf16 = false;
constexpr CpuIsa kIsa = CpuIsa::scalar;

using Floats = float __attribute__((vector_size(16)));
using Bits = std::int32_t __attribute__((vector_size(16)));

struct Vec {
  Floats v;
};

inline Vec set1(float x) {
  return {Floats{x, x, x, x}};
}
inline Vec zero() {
  return set1(0.0F);
}
inline Vec iota() {
  return {Floats{0, 1, 2, 3}};
}
inline Vec load(const float* p) {
  Vec x;
  std::memcpy(&x.v, p, sizeof(x.v));
  return x;
}
inline void store(float* p, Vec x) {
  std::memcpy(p, &x.v, sizeof(x.v));
}

inline Vec operator+(Vec a, Vec b) {
  return {a.v + b.v};
}
inline Vec operator-(Vec a, Vec b) {
  return {a.v - b.v};
}
inline Vec operator*(Vec a, Vec b) {
  return {a.v * b.v};
}
inline Vec operator/(Vec a, Vec b) {
  return {a.v / b.v};
}
inline Vec fma(Vec a, Vec b, Vec c) {
  return {a.v * b.v + c.v};
}
inline Vec max(Vec a, Vec b) {
  return {a.v > b.v ? a.v : b.v};
}
inline Vec min(Vec a, Vec b) {
  return {a.v < b.v ? a.v : b.v};
}
inline Vec select_less(Vec a, Vec b, Vec yes, Vec no) {
  return {a.v < b.v ? yes.v : no.v};
}
inline Vec round(Vec x) {
  const Floats magic = set1(12582912.0F).v;  // 1.5 * 2^23: adding it leaves no fraction bits
  return {(x.v + magic) - magic};
}
inline Vec power_of_two(Vec n) {
  const Bits exponent = (__builtin_convertvector(n.v, Bits) + 127) << 23;
  Vec power;
  std::memcpy(&power.v, &exponent, sizeof(exponent));
  return power;
}
inline Vec times_power_of_two(Vec x, Vec n) {
  const Vec half = round(n * set1(0.5F));  // in two factors, because 2^128 is not a float
  return (x * power_of_two(half)) * power_of_two(n - half);
}
inline float sum(Vec x) {
  return (x.v[0] + x.v[2]) + (x.v[1] + x.v[3]);
}
inline float highest(Vec x) {
  const float a = x.v[0] > x.v[2] ? x.v[0] : x.v[2];
  const float b = x.v[1] > x.v[3] ? x.v[1] : x.v[3];
  return a > b ? a : b;
}

inline Vec load_bf16(const void* p) {
  std::uint16_t halves[kLanes];
  std::memcpy(halves, p, sizeof(halves));
  Bits bits{};
  for (int i = 0; i < kLanes; ++i) bits[i] = static_cast<std::int32_t>(static_cast<std::uint32_t>(halves[i]) << 16);
  Vec x;
  std::memcpy(&x.v, &bits, sizeof(bits));
  return x;
}
inline Vec load_f16(const void* p) {
  Float16 halves[kLanes];
  std::memcpy(halves, p, sizeof(halves));
  Vec x = zero();
  for (int i = 0; i < kLanes; ++i) x.v[i] = to_float(halves[i]);
  return x;
}
inline void store_bf16(void* p, Vec x) {
  BFloat16 halves[kLanes];
  for (int i = 0; i < kLanes; ++i) halves[i] = to_bf16(x.v[i]);
  std::memcpy(p, halves, sizeof(halves));
}
inline void store_f16(void* p, Vec x) {
  Float16 halves[kLanes];
  for (int i = 0; i < kLanes; ++i) halves[i] = to_f16(x.v[i]);
  std::memcpy(p, halves, sizeof(halves));
}

inline Vec load_int8(const void* p) {
  std::int8_t integers[kLanes];
  std::memcpy(integers, p, sizeof(integers));
  return {Floats{static_cast<float>(integers[0]), static_cast<float>(integers[1]), static_cast<float>(integers[2]),
                 static_cast<float>(integers[3])}};
}
inline void store_int8(void* p, Vec x) {
  const Vec rounded = round(min(max(x, set1(-128.0F)), set1(127.0F)));
  std::int8_t integers[kLanes];
  for (int i = 0; i < kLanes; ++i) integers[i] = static_cast<std::int8_t>(rounded.v[i]);
  std::memcpy(p, integers, sizeof(integers));
}
inline Vec load_fp8(const void* p) {
  const auto& values = kFp8E4M3Values;
  std::uint8_t bits[kLanes];
  std::memcpy(bits, p, sizeof(bits));
  return Vec{Floats{values[bits[0]], values[bits[1]], values[bits[2]], values[bits[3]]}} * set1(1.0F / kFp8Unit);
}
inline void load_pair_fp8(const void* p, Vec& low, Vec& high) {
  low = load_fp8(p);
  high = load_fp8(static_cast<const char*>(p) + kLanes);
}
inline void load_quads_int8(const char* const* rows, std::int64_t at, Vec (&quads)[1]) {
  quads[0] = load_int8(rows[0] + at);
}
inline void load_quads_fp8(const char* const* rows, std::int64_t at, Vec (&quads)[1]) {
  quads[0] = load_fp8(rows[0] + at);
}

struct Square {
  Vec rows[kLanes];
};
inline Square load_square(const float* const* rows, std::int64_t at) {
  Square square;
  for (int r = 0; r < kLanes; ++r) square.rows[r] = load(rows[r] + at);
  return square;
}
inline void columns_of(const Square& square, int, Vec (&t)[4]) {
  const auto& r = square.rows;
  for (int i = 0; i < kLanes; ++i) t[i].v = Floats{r[0].v[i], r[1].v[i], r[2].v[i], r[3].v[i]};
}
inline Vec even_bf16(Vec pairs) {
  Bits bits;
  std::memcpy(&bits, &pairs.v, sizeof(bits));
  bits <<= 16;
  std::memcpy(&pairs.v, &bits, sizeof(bits));
  return pairs;
}
inline Vec odd_bf16(Vec pairs) {
  Bits bits;
  std::memcpy(&bits, &pairs.v, sizeof(bits));
  bits &= static_cast<std::int32_t>(0xFFFF0000U);
  std::memcpy(&pairs.v, &bits, sizeof(bits));
  return pairs;
}
inline Vec load_pairs_bf16(const void* first, const void* second) {
  std::uint16_t pairs[kLanes][2];
  for (int i = 0; i < kLanes; ++i) {
    std::memcpy(&pairs[i][0], static_cast<const char*>(first) + 2 * i, 2);
    std::memcpy(&pairs[i][1], static_cast<const char*>(second) + 2 * i, 2);
  }
  Vec x;
  std::memcpy(&x.v, pairs, sizeof(pairs));
  return x;
}
inline Vec round_to_pairs(Vec first, Vec second) {
  std::uint32_t a[kLanes];
  std::uint32_t b[kLanes];
  std::memcpy(a, &first.v, sizeof(a));
  std::memcpy(b, &second.v, sizeof(b));
  for (int i = 0; i < kLanes; ++i) a[i] = ((a[i] + 0x8000U) >> 16) | ((b[i] + 0x8000U) & 0xFFFF0000U);
  std::memcpy(&first.v, a, sizeof(a));
  return first;
}
inline Vec broadcast_quad(const float* p) {
  return load(p);
}
inline void transpose_quads(Vec (&)[1]) {}
inline void add_quad_sums(const Vec (&x)[2], bool starts_at_zero, float* sums) {
  for (int v = 0; v < 2; ++v) sums[v] = starts_at_zero ? sum(x[v]) : sums[v] + sum(x[v]);
}

}  // namespace pagoda::kernels::PAGODA_SIMD

#pragma once

/// Four floats, NEON of 64-bit Arm. vec_avx512.hpp describes the functions.

#include <cstdint>
#include <cstring>

#include <arm_neon.h>

#include "kernels/device.hpp"

namespace pagoda::kernels::PAGODA_SIMD {

constexpr int kLanes = 4;
constexpr int kMaxRows = 4;     // at most kLanes
constexpr int kLinearRows = 6;  // 24 sums, 4 vectors of w, 1 of x: 29 of 32 registers
constexpr int kLinearVectors = 4;
constexpr int kStreamRows = 8;  // 16 sums, 2 vectors of w, 1 of x
constexpr int kStreamVectors = 2;
constexpr int kPackingRows = 0;
constexpr int kRegisterTiledRows = 0;
constexpr int kRegisterTiledTile = 0;
constexpr int kWideStreamRows = 5;
constexpr int kMaxSums = 24;  // sums that fit registers beside a few other vectors
constexpr bool kDotsBf16 = false;
constexpr CpuIsa kIsa = CpuIsa::neon;

struct Vec {
  float32x4_t v;
};

inline Vec set1(float x) {
  return {vdupq_n_f32(x)};
}
inline Vec zero() {
  return set1(0.0F);
}
inline Vec iota() {
  const float numbers[kLanes] = {0, 1, 2, 3};
  return {vld1q_f32(numbers)};
}
inline Vec load(const float* p) {
  return {vld1q_f32(p)};
}
inline void store(float* p, Vec x) {
  vst1q_f32(p, x.v);
}

inline Vec operator+(Vec a, Vec b) {
  return {vaddq_f32(a.v, b.v)};
}
inline Vec operator-(Vec a, Vec b) {
  return {vsubq_f32(a.v, b.v)};
}
inline Vec operator*(Vec a, Vec b) {
  return {vmulq_f32(a.v, b.v)};
}
inline Vec operator/(Vec a, Vec b) {
  return {vdivq_f32(a.v, b.v)};
}
inline Vec fma(Vec a, Vec b, Vec c) {
  return {vfmaq_f32(c.v, a.v, b.v)};
}
inline Vec max(Vec a, Vec b) {
  return {vbslq_f32(vcgtq_f32(a.v, b.v), a.v, b.v)};
}
inline Vec min(Vec a, Vec b) {
  return {vbslq_f32(vcltq_f32(a.v, b.v), a.v, b.v)};
}
inline Vec select_less(Vec a, Vec b, Vec yes, Vec no) {
  return {vbslq_f32(vcltq_f32(a.v, b.v), yes.v, no.v)};
}
inline Vec round(Vec x) {
  return {vrndnq_f32(x.v)};
}
inline Vec power_of_two(Vec n) {
  return {vreinterpretq_f32_s32(vshlq_n_s32(vaddq_s32(vcvtnq_s32_f32(n.v), vdupq_n_s32(127)), 23))};
}
inline Vec times_power_of_two(Vec x, Vec n) {
  const Vec half = round(n * set1(0.5F));  // in two factors, because 2^128 is not a float
  return (x * power_of_two(half)) * power_of_two(n - half);
}
inline float sum(Vec x) {
  const float32x2_t two = vadd_f32(vget_low_f32(x.v), vget_high_f32(x.v));
  return vget_lane_f32(vpadd_f32(two, two), 0);
}
inline float highest(Vec x) {
  return vmaxvq_f32(x.v);
}

inline Vec load_bf16(const void* p) {
  std::uint16_t halves[kLanes];
  std::memcpy(halves, p, sizeof(halves));
  return {vreinterpretq_f32_u32(vshll_n_u16(vld1_u16(halves), 16))};
}
inline Vec load_f16(const void* p) {
  std::uint16_t halves[kLanes];
  std::memcpy(halves, p, sizeof(halves));
  return {vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(halves)))};
}
inline void store_bf16(void* p, Vec x) {
  const uint32x4_t bits = vreinterpretq_u32_f32(x.v);
  const uint32x4_t last_kept = vandq_u32(vshrq_n_u32(bits, 16), vdupq_n_u32(1));
  const uint32x4_t rounded = vaddq_u32(bits, vaddq_u32(last_kept, vdupq_n_u32(0x7FFF)));
  const uint32x4_t quiet = vorrq_u32(bits, vdupq_n_u32(0x400000));
  const uint16x4_t halves = vshrn_n_u32(vbslq_u32(vceqq_f32(x.v, x.v), rounded, quiet), 16);
  std::memcpy(p, &halves, sizeof(halves));
}
inline void store_f16(void* p, Vec x) {
  const uint16x4_t halves = vreinterpret_u16_f16(vcvt_f16_f32(x.v));
  std::memcpy(p, &halves, sizeof(halves));
}

/// Returns the four bytes at p, twice.
inline int8x8_t load_four_bytes(const void* p) {
  std::uint32_t bytes;
  std::memcpy(&bytes, p, sizeof(bytes));
  return vreinterpret_s8_u32(vdup_n_u32(bytes));
}
inline Vec load_int8(const void* p) {
  return {vcvtq_f32_s32(vmovl_s16(vget_low_s16(vmovl_s8(load_four_bytes(p)))))};
}
inline void store_int8(void* p, Vec x) {
  const int16x4_t words = vqmovn_s32(vcvtnq_s32_f32(x.v));
  const int8x8_t bytes = vqmovn_s16(vcombine_s16(words, words));
  std::memcpy(p, &bytes, kLanes);
}
inline float16x8_t fp8_as_f16(int8x8_t bytes) {
  const int16x8_t fields = vshll_n_s8(bytes, 7);
  const int16x8_t carried = vaddq_s16(fields, vdupq_n_s16(0x80));
  return vreinterpretq_f16_s16(veorq_s16(fields, vandq_s16(carried, vdupq_n_s16(0x4000))));
}
inline Vec load_fp8(const void* p) {
  return {vcvt_f32_f16(vget_low_f16(fp8_as_f16(load_four_bytes(p))))};
}
inline void load_pair_fp8(const void* p, Vec& low, Vec& high) {
  const float16x8_t halves = fp8_as_f16(vld1_s8(static_cast<const std::int8_t*>(p)));
  low.v = vcvt_f32_f16(vget_low_f16(halves));
  high.v = vcvt_high_f32_f16(halves);
}
inline void load_quads_int8(const char* const* rows, std::int64_t at, Vec (&quads)[1]) {
  quads[0] = load_int8(rows[0] + at);
}
inline void load_quads_fp8(const char* const* rows, std::int64_t at, Vec (&quads)[1]) {
  quads[0] = load_fp8(rows[0] + at);
}

struct Square {
  float32x4_t rows[kLanes];
};
inline Square load_square(const float* const* rows, std::int64_t at) {
  Square square;
  for (int r = 0; r < kLanes; ++r) square.rows[r] = vld1q_f32(rows[r] + at);
  return square;
}
inline void columns_of(const Square& square, int, Vec (&t)[4]) {
  const float32x4_t(&r)[kLanes] = square.rows;
  const float64x2_t even_01 = vreinterpretq_f64_f32(vtrn1q_f32(r[0], r[1]));
  const float64x2_t odd_01 = vreinterpretq_f64_f32(vtrn2q_f32(r[0], r[1]));
  const float64x2_t even_23 = vreinterpretq_f64_f32(vtrn1q_f32(r[2], r[3]));
  const float64x2_t odd_23 = vreinterpretq_f64_f32(vtrn2q_f32(r[2], r[3]));
  t[0].v = vreinterpretq_f32_f64(vtrn1q_f64(even_01, even_23));
  t[1].v = vreinterpretq_f32_f64(vtrn1q_f64(odd_01, odd_23));
  t[2].v = vreinterpretq_f32_f64(vtrn2q_f64(even_01, even_23));
  t[3].v = vreinterpretq_f32_f64(vtrn2q_f64(odd_01, odd_23));
}
inline Vec even_bf16(Vec pairs) {
  return {vreinterpretq_f32_u32(vshlq_n_u32(vreinterpretq_u32_f32(pairs.v), 16))};
}
inline Vec odd_bf16(Vec pairs) {
  return {vreinterpretq_f32_u32(vandq_u32(vreinterpretq_u32_f32(pairs.v), vdupq_n_u32(0xFFFF0000U)))};
}
inline Vec broadcast_quad(const float* p) {
  return load(p);
}
inline void transpose_quads(Vec (&)[1]) {}
template <int vectors>
inline void add_quad_sums(const Vec (&x)[vectors], bool starts_at_zero, float* sums) {
  for (int v = 0; v < vectors; ++v) sums[v] = starts_at_zero ? sum(x[v]) : sums[v] + sum(x[v]);
}

}  // namespace pagoda::kernels::PAGODA_SIMD

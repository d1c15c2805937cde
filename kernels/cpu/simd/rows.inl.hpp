// Row-wise kernels: conversions, norms, rotary, activations. Rows have any length: the part after the last whole
// vector is processed in a zero-padded copy. Included once per instruction set; PAGODA_SIMD names the namespace.

#include <cstdint>
#include <cstring>

#include "kernels/cpu/kernel_table.hpp"
#include "kernels/cpu/simd/first_lanes.inl.hpp"

namespace pagoda::kernels::PAGODA_SIMD {
namespace {

template <DType dtype>
inline Vec load_as(const void* p) {
  if constexpr (dtype == DType::f32) return load(static_cast<const float*>(p));
  if constexpr (dtype == DType::f16) return load_f16(p);
  if constexpr (dtype == DType::bf16) return load_bf16(p);
  if constexpr (dtype == DType::fp8_e4m3) return load_fp8(p);
  if constexpr (dtype == DType::int8) return load_int8(p);
}

/// Does the work of to_fp8_e4m3 without branches, so that the compiler vectorises it.
inline std::uint8_t fp8_bits(std::uint32_t bits) {
  constexpr std::uint32_t kInfinityBits = 0x7F800000U;
  constexpr std::uint32_t kMaxMagnitude = 0x43E00000U;  // 448
  constexpr std::uint32_t kMinNormal = 0x3C800000U;     // 2^-6
  constexpr float kUnitOfSubnormals = 16384.0F;         // its last bit is 2^-9: adding it rounds to multiples of 2^-9
  const std::uint32_t magnitude = bits & 0x7FFFFFFFU;
  const std::uint32_t clamped = magnitude < kMaxMagnitude ? magnitude : kMaxMagnitude;
  const std::uint32_t normal = ((clamped + 0x7FFFFU + ((clamped >> 20) & 1U)) >> 20) - (120U << 3);
  const auto subnormal = __builtin_bit_cast(std::uint32_t, __builtin_bit_cast(float, clamped) + kUnitOfSubnormals) -
                         __builtin_bit_cast(std::uint32_t, kUnitOfSubnormals);
  const std::uint32_t finite = clamped < kMinNormal ? subnormal : normal;
  const std::uint32_t rounded = magnitude > kInfinityBits ? 0x7FU : finite;
  return static_cast<std::uint8_t>(((bits >> 24) & 0x80U) | rounded);
}

inline void store_fp8(void* p, Vec x) {
  float floats[kLanes];
  std::uint32_t bits[kLanes];
  std::uint8_t bytes[kLanes];
  store(floats, x);
  std::memcpy(bits, floats, sizeof(bits));
  for (int i = 0; i < kLanes; ++i) bytes[i] = fp8_bits(bits[i]);
  std::memcpy(p, bytes, sizeof(bytes));
}

template <DType dtype>
inline void store_as(void* p, Vec x) {
  if constexpr (dtype == DType::f32) store(static_cast<float*>(p), x);
  if constexpr (dtype == DType::f16) store_f16(p, x);
  if constexpr (dtype == DType::bf16) store_bf16(p, x);
  if constexpr (dtype == DType::fp8_e4m3) store_fp8(p, x);
  if constexpr (dtype == DType::int8) store_int8(p, x);
}

template <DType dtype>
void widen_row(const void* src, std::int64_t count, float* dst) {
  constexpr auto kSize = static_cast<std::int64_t>(size_of(dtype));
  const char* from = static_cast<const char*>(src);
  std::int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) store(dst + i, load_as<dtype>(from + i * kSize));
  if (i == count) return;
  char rest[kLanes * kSize] = {};
  std::memcpy(rest, from + i * kSize, static_cast<std::size_t>((count - i) * kSize));
  store_first(dst + i, count - i, load_as<dtype>(rest));
}

void widen(const void* src, DType dtype, std::int64_t count, float* dst) {
  switch (dtype) {
    case DType::f32:
      return widen_row<DType::f32>(src, count, dst);
    case DType::f16:
      return widen_row<DType::f16>(src, count, dst);
    case DType::bf16:
      return widen_row<DType::bf16>(src, count, dst);
    case DType::fp8_e4m3:
      return widen_row<DType::fp8_e4m3>(src, count, dst);
    case DType::int8:
      return widen_row<DType::int8>(src, count, dst);
  }
}

inline Vec unchanged(Vec x) {
  return x;
}

/// Limits magnitudes to kMaxF16; NaN stays NaN.
inline Vec limit_to_f16(Vec x) {
  const Vec highest = set1(KvCacheView::kMaxF16);
  const Vec lowest = set1(-KvCacheView::kMaxF16);
  return select_less(highest, x, highest, select_less(x, lowest, lowest, x));
}

/// Stores limit(x).
template <DType dtype, Vec (*limit)(Vec) = unchanged>
void narrow_row(const float* src, std::int64_t count, void* dst) {
  constexpr auto kSize = static_cast<std::int64_t>(size_of(dtype));
  char* to = static_cast<char*>(dst);
  std::int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) store_as<dtype>(to + i * kSize, limit(load(src + i)));
  if (i == count) return;
  char rest[kLanes * kSize];
  store_as<dtype>(rest, limit(load_first(src + i, count - i)));
  std::memcpy(to + i * kSize, rest, static_cast<std::size_t>((count - i) * kSize));
}

void narrow(const float* src, std::int64_t count, DType dtype, void* dst) {
  switch (dtype) {
    case DType::f32:
      return narrow_row<DType::f32>(src, count, dst);
    case DType::f16:
      return narrow_row<DType::f16>(src, count, dst);
    case DType::bf16:
      return narrow_row<DType::bf16>(src, count, dst);
    case DType::fp8_e4m3:
      return narrow_row<DType::fp8_e4m3>(src, count, dst);
    case DType::int8:
      return narrow_row<DType::int8>(src, count, dst);
  }
}

void narrow_kv(const float* src, std::int64_t count, DType dtype, void* dst) {
  if (dtype == DType::f16) return narrow_row<DType::f16, limit_to_f16>(src, count, dst);
  narrow(src, count, dtype, dst);
}

float quantize(const float* src, std::int64_t count, std::int8_t* dst) {
  constexpr float kMaxInt8 = 127.0F;
  Vec magnitudes = zero();
  Vec not_finite = zero();  // NaN in each lane that had a value that is not finite
  for (std::int64_t i = 0; i < count; i += kLanes) {
    const Vec x = i + kLanes <= count ? load(src + i) : load_first(src + i, count - i);
    magnitudes = max(magnitudes, max(x, zero() - x));
    not_finite = fma(x, zero(), not_finite);
  }
  const float largest = highest(magnitudes);
  const bool is_finite = sum(not_finite) == 0.0F;
  if (!is_finite || largest < KvCacheView::kMinInt8Highest) {
    std::memset(dst, 0, static_cast<std::size_t>(count));
    return is_finite ? 0.0F : __builtin_nanf("");
  }
  const Vec inverse = set1(kMaxInt8 / largest);
  std::int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) store_int8(dst + i, load(src + i) * inverse);
  if (i < count) {
    std::int8_t rest[kLanes];
    store_int8(rest, load_first(src + i, count - i) * inverse);
    std::memcpy(dst + i, rest, static_cast<std::size_t>(count - i));
  }
  return largest / kMaxInt8;
}

/// out[i] = f(i-th vectors of a row), for whole vectors and for the rest. The argument of `f(load)` is a function that
/// loads the elements of a pointer at the current index.
template <class F>
inline void map_row(std::int64_t count, float* out, const F& f) {
  std::int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) store(out + i, f([i](const float* p) { return load(p + i); }));
  if (i == count) return;
  const std::int64_t rest = count - i;
  store_first(out + i, rest, f([i, rest](const float* p) { return load_first(p + i, rest); }));
}

void scale(const float* x, float factor, std::int64_t count, float* out) {
  const Vec factors = set1(factor);
  map_row(count, out, [=](const auto& at) { return at(x) * factors; });
}

inline float sum_of_squares(const float* x, std::int64_t count) {
  Vec sums[4] = {zero(), zero(), zero(), zero()};
  std::int64_t i = 0;
  for (; i + 4 * kLanes <= count; i += 4 * kLanes) {
#pragma GCC unroll 4
    for (int j = 0; j < 4; ++j) {
      const Vec v = load(x + i + j * kLanes);
      sums[j] = fma(v, v, sums[j]);
    }
  }
  for (; i < count; i += kLanes) {
    const Vec v = i + kLanes <= count ? load(x + i) : load_first(x + i, count - i);
    sums[0] = fma(v, v, sums[0]);
  }
  return sum((sums[0] + sums[1]) + (sums[2] + sums[3]));
}

void rms_norm(const float* x, float* residual, const float* weight, float eps, std::int64_t hidden, float* out) {
  if (residual != nullptr) {
    map_row(hidden, residual, [=](const auto& at) { return at(residual) + at(x); });
    x = residual;
  }
  const float mean = sum_of_squares(x, hidden) / static_cast<float>(hidden);
  const Vec factor = set1(1.0F / __builtin_sqrtf(mean + eps));
  map_row(hidden, out, [=](const auto& at) { return (at(x) * factor) * at(weight); });
}

void rotary(float* head, const float* cosines, const float* sines, std::int64_t half, bool interleaved) {
  if (interleaved) {
    for (std::int64_t i = 0; i < half; ++i) {
      const float a = head[2 * i];
      const float b = head[2 * i + 1];
      head[2 * i] = a * cosines[i] - b * sines[i];
      head[2 * i + 1] = b * cosines[i] + a * sines[i];
    }
    return;
  }
  const auto rotate = [](Vec a, Vec b, Vec c, Vec s, Vec& first, Vec& second) {
    first = a * c - b * s;
    second = b * c + a * s;
  };
  Vec first;
  Vec second;
  std::int64_t i = 0;
  for (; i + kLanes <= half; i += kLanes) {
    rotate(load(head + i), load(head + half + i), load(cosines + i), load(sines + i), first, second);
    store(head + i, first);
    store(head + half + i, second);
  }
  if (i == half) return;
  const std::int64_t rest = half - i;
  rotate(load_first(head + i, rest), load_first(head + half + i, rest), load_first(cosines + i, rest),
         load_first(sines + i, rest), first, second);
  store_first(head + i, rest, first);
  store_first(head + half + i, rest, second);
}

template <Vec (*act)(Vec)>
void activate_row(const float* x, const float* up, std::int64_t count, float* out) {
  if (up == nullptr) {
    map_row(count, out, [=](const auto& at) { return act(at(x)); });
  } else {
    map_row(count, out, [=](const auto& at) { return act(at(x)) * at(up); });
  }
}

void activation(Activation kind, const float* x, const float* up, std::int64_t count, float* out) {
  switch (kind) {
    case Activation::silu:
      return activate_row<silu>(x, up, count, out);
    case Activation::gelu:
      return activate_row<gelu>(x, up, count, out);
    case Activation::gelu_tanh:
      return activate_row<gelu_tanh>(x, up, count, out);
    case Activation::relu:
      return activate_row<relu>(x, up, count, out);
  }
}

void softcap(float* x, float factor, float cap, std::int64_t count) {
  const Vec f = set1(factor);
  const Vec c = set1(cap);
  map_row(count, x, [=](const auto& at) { return c * tanh((at(x) * f) / c); });
}

}  // namespace
}  // namespace pagoda::kernels::PAGODA_SIMD

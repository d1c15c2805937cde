#include "kernels/dtype.hpp"

#include <algorithm>
#include <cmath>

namespace pagoda {
Float8E4M3 to_fp8_e4m3(float x) {
  const auto bits = std::bit_cast<std::uint32_t>(x);
  const auto sign = static_cast<std::uint8_t>((bits >> 24) & 0x80U);
  const auto with_sign = [sign](std::uint32_t magnitude) {
    return Float8E4M3{static_cast<std::uint8_t>(sign | magnitude)};
  };
  if (std::isnan(x)) return with_sign(0x7FU);

  constexpr std::uint32_t kMaxMagnitude = 0x43E00000U;  // 448
  const std::uint32_t magnitude = std::min(bits & 0x7FFFFFFFU, kMaxMagnitude);
  constexpr std::uint32_t kMinNormal = 0x3C800000U;  // 2^-6
  if (magnitude < kMinNormal) {
    // The result is a multiple of 2^-9. The product is exact, and nearbyint rounds to nearest even in the default mode.
    return with_sign(static_cast<std::uint32_t>(std::nearbyint(std::ldexp(std::bit_cast<float>(magnitude), 9))));
  }
  const std::uint32_t rounded = magnitude + 0x7FFFFU + ((magnitude >> 20) & 1U);
  return with_sign((rounded >> 20) - (120U << 3));
}

float to_float(Float16 x) {
  const std::uint32_t sign = static_cast<std::uint32_t>(x.bits & 0x8000U) << 16;
  const std::uint32_t exponent = (x.bits >> 10) & 0x1FU;
  const std::uint32_t fraction = x.bits & 0x3FFU;
  if (exponent == 0) {
    const float magnitude = std::ldexp(static_cast<float>(fraction), -24);
    return sign != 0 ? -magnitude : magnitude;
  }
  const std::uint32_t float_exponent = exponent == 31 ? 255U : exponent + 112U;
  return std::bit_cast<float>(sign | (float_exponent << 23) | (fraction << 13));
}

BFloat16 to_bf16(float x) {
  const auto bits = std::bit_cast<std::uint32_t>(x);
  if (std::isnan(x)) return {static_cast<std::uint16_t>((bits >> 16) | 0x40U)};
  return {static_cast<std::uint16_t>((bits + 0x7FFFU + ((bits >> 16) & 1U)) >> 16)};
}

Float16 to_f16(float x) {
  const auto bits = std::bit_cast<std::uint32_t>(x);
  const auto sign = static_cast<std::uint16_t>((bits >> 16) & 0x8000U);
  const auto with_sign = [sign](std::uint32_t magnitude) {
    return Float16{static_cast<std::uint16_t>(sign | magnitude)};
  };
  if (std::isnan(x)) return with_sign(0x7E00U | ((bits >> 13) & 0x1FFU));

  const std::uint32_t magnitude = bits & 0x7FFFFFFFU;
  constexpr std::uint32_t kFirstThatOverflows = 0x477FF000U;  // 65520: halfway from the largest float16 to 2^16
  if (magnitude >= kFirstThatOverflows) return with_sign(0x7C00U);
  constexpr std::uint32_t kMinNormal = 0x38800000U;  // 2^-14
  if (magnitude < kMinNormal) {
    // The result is a multiple of 2^-24. The product is exact, and nearbyint rounds to nearest even in the default
    // mode.
    return with_sign(static_cast<std::uint32_t>(std::nearbyint(std::ldexp(std::bit_cast<float>(magnitude), 24))));
  }
  const std::uint32_t rounded = magnitude + 0xFFFU + ((magnitude >> 13) & 1U);
  return with_sign((rounded >> 13) - (112U << 10));
}

}  // namespace pagoda

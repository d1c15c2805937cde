#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace pagoda {

/// Element types of weights, activations and the KV cache. The one-byte types are types of the KV cache; fp8_e4m3 is
/// also a type of weights with scales.
enum class DType : std::uint8_t { f32, f16, bf16, fp8_e4m3, int8 };

constexpr std::size_t size_of(DType dtype) {
  switch (dtype) {
    case DType::f32:
      return 4;
    case DType::f16:
    case DType::bf16:
      return 2;
    case DType::fp8_e4m3:
    case DType::int8:
      return 1;
  }
  return 0;
}

/// Returns whether weights without scales can have this type.
constexpr bool is_weight_type(DType dtype) {
  return dtype == DType::f32 || dtype == DType::f16 || dtype == DType::bf16;
}

/// Returns "float32", "float16", "bfloat16", "fp8_e4m3" or "int8": the names of --dtype, of torch_dtype and of
/// --kv-cache-dtype.
constexpr std::string_view to_string(DType dtype) {
  switch (dtype) {
    case DType::f32:
      return "float32";
    case DType::f16:
      return "float16";
    case DType::bf16:
      return "bfloat16";
    case DType::fp8_e4m3:
      return "fp8_e4m3";
    case DType::int8:
      return "int8";
  }
  return "?";
}

/// bfloat16: the upper half of a float32.
struct BFloat16 {
  std::uint16_t bits = 0;
};

/// IEEE binary16.
struct Float16 {
  std::uint16_t bits = 0;
};

/// 8 bits: sign, 4 of exponent (bias 7), 3 of fraction; no infinity, the highest magnitude is 448, 0x7F and 0xFF are
/// NaN ("E4M3" of Micikevicius et al. 2022, OCP 8-bit floating point specification).
struct Float8E4M3 {
  std::uint8_t bits = 0;
};

inline float to_float(float x) {
  return x;
}
inline float to_float(BFloat16 x) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(x.bits) << 16);
}
/// Returns the exact value, also for subnormal numbers.
float to_float(Float16 x);
/// Value of each bit pattern of a Float8E4M3.
inline constexpr std::array<float, 256> kFp8E4M3Values = [] {
  constexpr std::uint32_t kNan = 0x7F;
  constexpr std::uint32_t kFloatNan = 0x7FC00000U;
  std::array<float, 256> values{};
  for (std::uint32_t bits = 0; bits < values.size(); ++bits) {
    const std::uint32_t magnitude = bits & 0x7FU;
    const float subnormal = static_cast<float>(magnitude) * 0x1p-9F;
    const auto normal = std::bit_cast<float>((magnitude << 20) + (120U << 23));
    const float number = magnitude < 8 ? subnormal : normal;
    const float value = magnitude == kNan ? std::bit_cast<float>(kFloatNan) : number;
    values[bits] = (bits & 0x80U) != 0 ? -value : value;
  }
  return values;
}();
/// Returns the exact value.
inline float to_float(Float8E4M3 x) {
  return kFp8E4M3Values[x.bits];
}

/// Rounds to nearest, ties to even; NaN stays NaN.
BFloat16 to_bf16(float x);
/// Rounds to nearest, ties to even; overflow gives infinity.
Float16 to_f16(float x);
/// Rounds to nearest, ties to even. Magnitudes above 448, infinity included, become 448; NaN stays NaN.
Float8E4M3 to_fp8_e4m3(float x);

}  // namespace pagoda

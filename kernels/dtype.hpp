#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace pagoda {

/// Element types of weights, activations and the KV cache.
enum class DType : std::uint8_t { f32, f16, bf16 };

constexpr std::size_t size_of(DType dtype) {
  return dtype == DType::f32 ? 4 : 2;
}

/// "float32", "float16", "bfloat16": the names of --dtype and of torch_dtype.
constexpr std::string_view to_string(DType dtype) {
  switch (dtype) {
    case DType::f32:
      return "float32";
    case DType::f16:
      return "float16";
    case DType::bf16:
      return "bfloat16";
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

inline float to_float(float x) {
  return x;
}
inline float to_float(BFloat16 x) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(x.bits) << 16);
}
/// Exact, subnormals included.
float to_float(Float16 x);

/// Round to nearest, ties to even; NaN stays NaN.
BFloat16 to_bf16(float x);
/// Round to nearest, ties to even; overflow gives infinity.
Float16 to_f16(float x);

}  // namespace pagoda

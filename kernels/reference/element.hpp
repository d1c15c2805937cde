#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>

#include "kernels/dtype.hpp"

namespace pagoda::kernels::reference {

/// Returns data[index] of an array of `dtype`, widened to float32; int8 without its scale.
inline float load(const void* data, DType dtype, std::int64_t index) {
  switch (dtype) {
    case DType::f32:
      return static_cast<const float*>(data)[index];
    case DType::f16:
      return to_float(static_cast<const Float16*>(data)[index]);
    case DType::bf16:
      return to_float(static_cast<const BFloat16*>(data)[index]);
    case DType::fp8_e4m3:
      return to_float(static_cast<const Float8E4M3*>(data)[index]);
    case DType::int8:
      return static_cast<const std::int8_t*>(data)[index];
  }
  return 0.0F;
}

/// Writes data[index] = value, rounded to nearest even. For int8, `value` has been divided by its scale.
inline void store(void* data, DType dtype, std::int64_t index, float value) {
  switch (dtype) {
    case DType::f32:
      static_cast<float*>(data)[index] = value;
      return;
    case DType::f16:
      static_cast<Float16*>(data)[index] = to_f16(value);
      return;
    case DType::bf16:
      static_cast<BFloat16*>(data)[index] = to_bf16(value);
      return;
    case DType::fp8_e4m3:
      static_cast<Float8E4M3*>(data)[index] = to_fp8_e4m3(value);
      return;
    case DType::int8:
      static_cast<std::int8_t*>(data)[index] =
          static_cast<std::int8_t>(std::clamp(std::nearbyint(value), -127.0F, 127.0F));
      return;
  }
}

}  // namespace pagoda::kernels::reference

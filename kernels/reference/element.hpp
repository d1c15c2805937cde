#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/dtype.hpp"

namespace pagoda::kernels::reference {

/// data[index] of an array of `dtype`, widened.
inline float load(const void* data, DType dtype, std::int64_t index) {
  switch (dtype) {
    case DType::f32:
      return static_cast<const float*>(data)[index];
    case DType::f16:
      return to_float(static_cast<const Float16*>(data)[index]);
    case DType::bf16:
      return to_float(static_cast<const BFloat16*>(data)[index]);
  }
  return 0.0F;
}

/// data[index] = value, rounded to nearest even.
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
  }
}

}  // namespace pagoda::kernels::reference

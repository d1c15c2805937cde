#pragma once

#include "kernels/dtype.hpp"
#include "kernels/ops.hpp"

namespace pagoda::layers {

/// Rows of activations that a linear layer reads: float32, or the type to which the layer would round them
/// (Linear::input_type). Does not own the memory.
struct Rows {
  Rows(float* rows) : floats(rows) {}  // NOLINT(google-explicit-constructor): rows are usually float32
  /// `memory` must be large enough for float32.
  Rows(float* memory, DType dtype) {
    if (dtype == DType::f32) {
      floats = memory;
    } else {
      narrow = {memory, dtype};
    }
  }

  float* floats = nullptr;  ///< null if the rows are `narrow`
  kernels::NarrowRows narrow;
};

}  // namespace pagoda::layers

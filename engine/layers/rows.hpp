#pragma once

#include "kernels/dtype.hpp"
#include "kernels/ops.hpp"

namespace pagoda::layers {

/// Rows of activations on their way to a linear layer: float32, or of the type that the layer would round them to
/// (Linear::input_type). Not owned.
struct Rows {
  Rows(float* rows) : floats(rows) {}  // NOLINT(google-explicit-constructor): float32 is what rows usually are
  /// In memory that is large enough for float32.
  Rows(float* memory, DType dtype) {
    if (dtype == DType::f32) {
      floats = memory;
    } else {
      narrow = {memory, dtype};
    }
  }

  float* floats = nullptr;  ///< or null, and narrow
  kernels::NarrowRows narrow;
};

}  // namespace pagoda::layers

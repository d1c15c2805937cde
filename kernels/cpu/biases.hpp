#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "kernels/cpu/kernel_table.hpp"

namespace pagoda::kernels {

/// Returns the biases of all parts of LinearParams or QuantizedLinearParams, widened into scratch of a float for each
/// output feature, 0 for parts without biases; null if no part has biases.
template <class Params>
const float* widened_biases(const CpuKernels& kernels, const Params& params, float* scratch) {
  if (params.biases.empty()) return nullptr;
  float* part_biases = scratch;
  for (std::size_t part = 0; part < params.weights.size(); ++part) {
    const std::int64_t rows = params.weights[part].rows;
    if (params.biases[part] != nullptr) {
      kernels.widen(params.biases[part], params.bias_dtype, rows, part_biases);
    } else {
      std::fill_n(part_biases, rows, 0.0F);
    }
    part_biases += rows;
  }
  return scratch;
}

}  // namespace pagoda::kernels

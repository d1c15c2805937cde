#pragma once

#include <cstdint>

namespace pagoda::kernels {

/// Computes one row of LayerNormParams; each array has `hidden` floats. residual may be null, and out may be x or
/// residual.
void cpu_layer_norm_row(const float* x, float* residual, const float* weight, const float* bias, float eps,
                        std::int64_t hidden, float* out);

}  // namespace pagoda::kernels

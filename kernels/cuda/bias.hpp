#pragma once

#include <cstdint>

#include <cuda_runtime_api.h>

#include "kernels/cuda/gemm.hpp"
#include "kernels/ops.hpp"

namespace pagoda::kernels::cuda {

/// Writes the bias as float32 to out[0 .. count - 1], or zeros if the bias is null.
Status widen_bias(cudaStream_t stream, const void* bias, DType dtype, std::int64_t count, float* out);

/// Computes out += bias, for a product whose algorithm cannot add the bias.
Status add_bias(cudaStream_t stream, const GemmParams& params);

}  // namespace pagoda::kernels::cuda

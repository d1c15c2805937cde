#pragma once

#include <cstdint>

#include <cuda_runtime_api.h>

#include "kernels/cuda/gemm.hpp"
#include "kernels/ops.hpp"

namespace pagoda::kernels::cuda {

/// out[0 .. count - 1] = the bias as float32; 0 where it is null.
Status widen_bias(cudaStream_t stream, const void* bias, DType dtype, std::int64_t count, float* out);

/// out += bias, for a product whose algorithm could not add it.
Status add_bias(cudaStream_t stream, const GemmParams& params);

}  // namespace pagoda::kernels::cuda

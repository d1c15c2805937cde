#pragma once

/// Declares the kernel launches that cuda_quantized_linear uses, one per integer format.

#include <cstdint>

#include <cuda_runtime_api.h>

#include "kernels/cuda/quantized_linear.hpp"
#include "kernels/result.hpp"

namespace pagoda::kernels::cuda {

/// Rows [first, first + count) of an op's x.
struct QuantizedProduct {
  const QuantizedLinearParams& params;
  QuantizedX x;
  std::int64_t first = 0;
  std::int64_t count = 0;
  const void* x_data = nullptr;  ///< the integers of the rows, in the layout `x`
};

Status multiply_int4(cudaStream_t stream, const QuantizedProduct& product);
Status multiply_int5(cudaStream_t stream, const QuantizedProduct& product);
Status multiply_int6(cudaStream_t stream, const QuantizedProduct& product);
Status multiply_int8(cudaStream_t stream, const QuantizedProduct& product);
Status multiply_codebook(cudaStream_t stream, const QuantizedProduct& product);

}  // namespace pagoda::kernels::cuda

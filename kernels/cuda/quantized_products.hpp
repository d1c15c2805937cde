#pragma once

/// The launches behind cuda_quantized_linear, one per way of storing integers.

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
  const void* x_data = nullptr;  ///< their integers, as `x` says
};

Status multiply_int4(cudaStream_t stream, const QuantizedProduct& product);
Status multiply_int5(cudaStream_t stream, const QuantizedProduct& product);
Status multiply_int6(cudaStream_t stream, const QuantizedProduct& product);
Status multiply_int8(cudaStream_t stream, const QuantizedProduct& product);
Status multiply_codebook(cudaStream_t stream, const QuantizedProduct& product);

}  // namespace pagoda::kernels::cuda

#pragma once

#include "kernels/cuda/cuda_stream.hpp"
#include "kernels/ops.hpp"

namespace pagoda::kernels::cuda {

/// From this many rows of x on, weights converted to bfloat16 for cuBLASLt are faster than integer products
/// (docs/benchmarks/gpu.md).
constexpr std::int64_t kMinDequantizedRows = 129;

/// Computes QuantizedLinearParams with x and the weights rounded to bfloat16 and with float32 sums. Weights are
/// converted piece by piece in scratch. Errors: unsupported if rows are not aligned as cuBLASLt needs (then nothing is
/// written); the errors of the stream and of Gemm.
Status dequantized_linear(CudaStream& stream, const QuantizedLinearParams& p);

}  // namespace pagoda::kernels::cuda

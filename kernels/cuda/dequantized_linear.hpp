#pragma once

#include "kernels/cuda/cuda_stream.hpp"
#include "kernels/ops.hpp"

namespace pagoda::kernels::cuda {

/// From so many rows of x on, weights that become bfloat16 on the way to cuBLASLt are faster than integers
/// (docs/benchmarks/gpu.md).
constexpr std::int64_t kMinDequantizedRows = 129;

/// QuantizedLinearParams with x and the weights rounded to bfloat16, weights piece by piece in scratch, and sums in
/// float32. More errors: unsupported, when rows are not aligned as cuBLASLt needs them; nothing has been written then.
Status dequantized_linear(CudaStream& stream, const QuantizedLinearParams& p);

}  // namespace pagoda::kernels::cuda

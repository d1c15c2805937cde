#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/cuda/cuda_stream.hpp"
#include "kernels/cuda/linear.hpp"
#include "kernels/ops.hpp"

namespace pagoda::kernels::cuda {

/// Up to this many rows of x, 8-bit floats are multiplied in float32 (skinny_linear.hpp). The weights are read once for
/// each 8 rows of x, so that 16 rows read as many bytes as bfloat16 weights have.
constexpr std::int64_t kMaxSkinnyFloat8Rows = 16;

/// Ops::linear for weights that are 8-bit floats with scales. Up to kMaxSkinnyFloat8Rows rows of x, and weights or
/// outputs that are not aligned to 16 bytes, are multiplied in float32. With more rows, x and the scaled weights are
/// rounded to bfloat16, weights piece by piece in scratch, and multiplied on tensor cores with float32 sums. Within
/// each of the two paths an output has the same bits for any number of rows, as long as cuBLASLt uses the same
/// algorithm. `max_bytes` limits a pass's rows of x, and its weights, in scratch.
Status float8_linear(CudaStream& stream, const LinearParams& p, std::size_t max_bytes = kMaxScratchBytes);

}  // namespace pagoda::kernels::cuda

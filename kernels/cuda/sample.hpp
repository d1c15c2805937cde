#pragma once

#include <cstdint>

#include "kernels/cuda/cuda_stream.hpp"
#include "kernels/sample.hpp"

namespace pagoda::kernels::cuda {

/// Ops::sample: one thread block per row. Tokens, ranks and lists equal those of the CPU backend; a draw may differ if
/// its random number lies within rounding of the border between two tokens. The result of a row does not depend on the
/// other rows.
///
/// The prompt_tokens, output_tokens and last_tokens of a row are device memory, which is read in stream order; the row
/// itself and its other lists are host memory, which is read before the call returns. Errors: unsupported, for a
/// vocabulary above 2^21; out_of_memory. Must not be captured.
Status cuda_sample(CudaStream& stream, const SampleParams& p);

}  // namespace pagoda::kernels::cuda

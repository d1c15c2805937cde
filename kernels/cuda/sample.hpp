#pragma once

#include <cstdint>

#include "kernels/cuda/cuda_stream.hpp"
#include "kernels/sample.hpp"

namespace pagoda::kernels::cuda {

/// Ops::sample: one block per row. Tokens, ranks and lists are those of the CPU's; a draw may differ where its random
/// number lies within rounding of the border between two tokens. A row's result does not depend on the other rows.
///
/// Of a row, prompt_tokens, output_tokens and last_tokens are device memory, which is read in stream order; the row
/// itself and its other lists are host memory, which is read before this returns. Errors: unsupported, for a vocabulary
/// above 2^21; out_of_memory. Not to be captured.
Status cuda_sample(CudaStream& stream, const SampleParams& p);

}  // namespace pagoda::kernels::cuda

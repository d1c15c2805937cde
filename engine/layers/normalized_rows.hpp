#pragma once

#include "kernels/device.hpp"
#include "kernels/ops.hpp"
#include "kernels/result.hpp"

namespace pagoda::layers {

/// A copy of `matrix` with each row scaled to length 1. The rows keep their dtype and are
/// rounded where torch.nn.functional.normalize rounds them: the length (1e-12 at least), then each quotient. Both lie
/// in the host's memory. Errors: out_of_memory.
Result<kernels::Buffer> normalized_rows(const kernels::WeightMatrix& matrix);

}  // namespace pagoda::layers

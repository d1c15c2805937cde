#pragma once

#include <cstddef>

#include "kernels/ops.hpp"

namespace pagoda::layers {

/// Writes `matrix` with each row scaled to length 1 to `rows` [matrix.rows, matrix.columns]. The rows keep their dtype.
/// They are rounded where torch.nn.functional.normalize rounds: the length (at least 1e-12), then each quotient. Both
/// matrices lie in the host's memory.
void normalize_rows(const kernels::WeightMatrix& matrix, std::byte* rows);

}  // namespace pagoda::layers

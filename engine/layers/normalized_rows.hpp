#pragma once

#include <cstddef>

#include "kernels/ops.hpp"

namespace pagoda::layers {

/// `rows` [matrix.rows, matrix.columns] = `matrix` with each row scaled to length 1. The rows keep their dtype and are
/// rounded where torch.nn.functional.normalize rounds them: the length (1e-12 at least), then each quotient. Both lie
/// in the host's memory.
void normalize_rows(const kernels::WeightMatrix& matrix, std::byte* rows);

}  // namespace pagoda::layers

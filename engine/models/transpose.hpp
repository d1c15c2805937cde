#pragma once

#include <cstddef>

#include "kernels/ops.hpp"

namespace pagoda::models {

/// Writes the transpose [matrix.columns, matrix.rows] of `matrix`, whose elements have 2 or 4 bytes, to `transposed`.
/// Both matrices lie in the host's memory, at any address.
void transpose(const kernels::WeightMatrix& matrix, std::byte* transposed);

}  // namespace pagoda::models

#include "engine/models/transpose.hpp"

#include <cstring>

#include "kernels/result.hpp"

namespace pagoda::models {
namespace {

template <std::size_t width>
void transpose_elements(const kernels::WeightMatrix& matrix, std::byte* transposed) {
  const auto* from = static_cast<const std::byte*>(matrix.data);
  for (std::int64_t row = 0; row < matrix.rows; ++row) {
    for (std::int64_t column = 0; column < matrix.columns; ++column, from += width) {
      std::memcpy(transposed + static_cast<std::size_t>(column * matrix.rows + row) * width, from, width);
    }
  }
}

}  // namespace

void transpose(const kernels::WeightMatrix& matrix, std::byte* transposed) {
  if (size_of(matrix.dtype) == 4) return transpose_elements<4>(matrix, transposed);
  PAGODA_ASSERT(size_of(matrix.dtype) == 2, "elements have 2 or 4 bytes");
  transpose_elements<2>(matrix, transposed);
}

}  // namespace pagoda::models

#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "engine/adapters/adapter.hpp"

namespace pagoda::io {

/// Limit on the rank of a module's matrices.
inline constexpr std::int64_t kMaxAdapterRank = 512;

/// Returns whether no element is infinite or NaN.
bool is_finite(const adapters::AdapterMatrix& matrix);

/// Returns the matrix [columns, rows].
adapters::AdapterMatrix transposed(const adapters::AdapterMatrix& matrix);

/// Returns the matrix whose row i is row `row_of(i)` of `matrix`.
adapters::AdapterMatrix with_rows(const adapters::AdapterMatrix& matrix, const auto& row_of) {
  adapters::AdapterMatrix result = matrix;
  const std::size_t row_bytes = matrix.data.size() / static_cast<std::size_t>(matrix.rows);
  for (std::int64_t row = 0; row < matrix.rows; ++row) {
    const auto from = matrix.data.begin() + row_of(row) * static_cast<std::int64_t>(row_bytes);
    std::copy_n(from, row_bytes, result.data.begin() + row * static_cast<std::int64_t>(row_bytes));
  }
  return result;
}

}  // namespace pagoda::io

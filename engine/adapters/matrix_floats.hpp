#pragma once

#include <cstddef>
#include <vector>

#include "engine/adapters/adapter.hpp"
#include "kernels/reference/element.hpp"

namespace pagoda::adapters {

/// Returns all elements as float32.
inline std::vector<float> floats_of(const AdapterMatrix& matrix) {
  std::vector<float> floats(static_cast<std::size_t>(matrix.rows * matrix.columns));
  for (std::size_t i = 0; i < floats.size(); ++i) {
    floats[i] = kernels::reference::load(matrix.data.data(), matrix.dtype, static_cast<std::int64_t>(i));
  }
  return floats;
}

}  // namespace pagoda::adapters

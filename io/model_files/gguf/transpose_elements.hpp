#pragma once

#include <cstddef>
#include <cstring>
#include <span>

namespace pagoda::io {

/// Transposes `from` [rows, columns], elements of `width` bytes, to `to` [columns, rows].
inline void transpose_elements(std::span<const std::byte> from, std::size_t rows, std::size_t width, std::byte* to) {
  const std::size_t columns = from.size() / width / rows;
  for (std::size_t row = 0; row < rows; ++row) {
    for (std::size_t column = 0; column < columns; ++column) {
      std::memcpy(to + (column * rows + row) * width, from.data() + (row * columns + column) * width, width);
    }
  }
}

}  // namespace pagoda::io

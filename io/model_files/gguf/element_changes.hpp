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

/// Adds `addend` to each of the float32 elements in `floats`.
inline void add_to_floats(float addend, std::span<std::byte> floats) {
  for (std::size_t at = 0; at < floats.size(); at += sizeof(float)) {
    float element = 0.0F;
    std::memcpy(&element, floats.data() + at, sizeof(float));
    element += addend;
    std::memcpy(floats.data() + at, &element, sizeof(float));
  }
}

}  // namespace pagoda::io

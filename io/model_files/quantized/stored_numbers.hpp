#pragma once

/// Matrices of numbers in files of quantised weights: packed, transposed, at any address.

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "kernels/dtype.hpp"

namespace pagoda::io {

/// A matrix [rows, columns] of unsigned integers of 4 or 8 bits, several of which may share a word.
struct StoredIntegers {
  const std::byte* data = nullptr;
  int bits = 4;
  int word_bits = 32;  ///< 32, or 8 for integers of 8 bits
  /// Whether a word holds neighbouring rows of one column; else neighbouring columns of one row.
  bool along_rows = false;
  std::int64_t row_step = 0;  ///< bytes from a word to the word of the next rows
  std::int64_t column_step = 0;
  /// Positions in a word of neighbours, in multiples of `bits`.
  std::array<std::uint8_t, 8> lanes{0, 1, 2, 3, 4, 5, 6, 7};
  /// Number added to stored integers, modulo 2^bits: 2^(bits - 1) makes signed integers count from 0.
  std::uint32_t add = 0;

  std::int64_t per_word() const { return word_bits / bits; }
  std::uint32_t at(std::int64_t row, std::int64_t column) const;
  /// Reads the first `columns` integers of a row, each into one byte.
  void read_row(std::int64_t row, std::int64_t columns, std::uint8_t* to) const;

 private:
  std::uint32_t word(const std::byte* at) const {
    if (word_bits == 8) return std::to_integer<std::uint32_t>(*at);
    std::uint32_t value = 0;
    std::memcpy(&value, at, sizeof value);
    return value;
  }
  std::uint8_t integer(std::uint32_t word, std::int64_t neighbour) const {
    const int shift = bits * lanes[static_cast<std::size_t>(neighbour)];
    return static_cast<std::uint8_t>(((word >> shift) + add) & ((1U << bits) - 1));
  }
};

/// A matrix of numbers in float32, float16 or bfloat16. A step of 0 repeats a number.
struct StoredFloats {
  const std::byte* data = nullptr;
  DType dtype = DType::f32;
  std::int64_t row_step = 0;     ///< in elements
  std::int64_t column_step = 0;  ///< in elements
  float times = 1.0F;            ///< factor of all numbers

  float at(std::int64_t row, std::int64_t column) const;
};

}  // namespace pagoda::io

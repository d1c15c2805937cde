#include "io/adapters/adapter_matrix.hpp"

#include <cstring>

namespace pagoda::io {
namespace {

/// Returns whether no element has all bits of `exponent` set. `T`: unsigned integer with the bits of an element.
template <class T>
bool is_below(const std::vector<std::byte>& data, T exponent) {
  for (std::size_t at = 0; at + sizeof(T) <= data.size(); at += sizeof(T)) {
    T bits = 0;
    std::memcpy(&bits, data.data() + at, sizeof(T));
    if ((bits & exponent) == exponent) return false;
  }
  return true;
}

}  // namespace

bool is_finite(const adapters::AdapterMatrix& matrix) {
  constexpr std::uint32_t kFloat32Exponent = 0x7F800000U;
  constexpr std::uint16_t kFloat16Exponent = 0x7C00U;
  constexpr std::uint16_t kBFloat16Exponent = 0x7F80U;
  if (matrix.dtype == DType::f32) return is_below(matrix.data, kFloat32Exponent);
  return is_below(matrix.data, matrix.dtype == DType::f16 ? kFloat16Exponent : kBFloat16Exponent);
}

adapters::AdapterMatrix transposed(const adapters::AdapterMatrix& matrix) {
  const std::size_t bytes = size_of(matrix.dtype);
  const auto rows = static_cast<std::size_t>(matrix.rows);
  const auto columns = static_cast<std::size_t>(matrix.columns);
  adapters::AdapterMatrix result{matrix.dtype, matrix.columns, matrix.rows, std::vector<std::byte>(matrix.data.size())};
  for (std::size_t row = 0; row < rows; ++row) {
    for (std::size_t column = 0; column < columns; ++column) {
      std::memcpy(result.data.data() + (column * rows + row) * bytes,
                  matrix.data.data() + (row * columns + column) * bytes, bytes);
    }
  }
  return result;
}

}  // namespace pagoda::io

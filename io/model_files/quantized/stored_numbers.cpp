#include "io/model_files/quantized/stored_numbers.hpp"

#include <algorithm>

namespace pagoda::io {
namespace {

template <class T>
T load(const std::byte* at) {
  T value;
  std::memcpy(&value, at, sizeof value);
  return value;
}

}  // namespace

std::uint32_t StoredIntegers::at(std::int64_t row, std::int64_t column) const {
  const std::int64_t per = per_word();
  const std::int64_t down = along_rows ? row / per : row;
  const std::int64_t across = along_rows ? column : column / per;
  return integer(word(data + down * row_step + across * column_step), (along_rows ? row : column) % per);
}

void StoredIntegers::read_row(std::int64_t row, std::int64_t columns, std::uint8_t* to) const {
  const std::int64_t per = per_word();
  if (along_rows) {
    const std::byte* from = data + row / per * row_step;
    for (std::int64_t k = 0; k < columns; ++k, from += column_step) to[k] = integer(word(from), row % per);
    return;
  }
  const std::byte* from = data + row * row_step;
  for (std::int64_t k = 0; k < columns; k += per, from += column_step) {
    const std::uint32_t neighbours = word(from);
    const std::int64_t count = std::min(per, columns - k);
    for (std::int64_t i = 0; i < count; ++i) to[k + i] = integer(neighbours, i);
  }
}

float StoredFloats::at(std::int64_t row, std::int64_t column) const {
  const std::byte* from = data + (row * row_step + column * column_step) * static_cast<std::int64_t>(size_of(dtype));
  switch (dtype) {
    case DType::f16:
      return times * to_float(load<Float16>(from));
    case DType::bf16:
      return times * to_float(load<BFloat16>(from));
    case DType::f32:
    case DType::fp8_e4m3:
    case DType::int8:
      break;
  }
  return times * load<float>(from);
}

}  // namespace pagoda::io

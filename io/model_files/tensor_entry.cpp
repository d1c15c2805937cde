#include "io/model_files/tensor_entry.hpp"

#include <cstring>

namespace pagoda::io {
namespace {

/// Copies row by row. `index` counts through all dimensions but the last.
void copy_strided(const TensorEntry& entry, const std::byte* from, std::size_t element_bytes, std::byte* to) {
  const std::size_t rank = entry.shape.size();
  const auto row_elements = static_cast<std::size_t>(entry.shape.back());
  const std::size_t row_step = static_cast<std::size_t>(entry.strides.back()) * element_bytes;
  std::vector<std::int64_t> index(rank, 0);
  while (true) {
    std::int64_t offset = 0;
    for (std::size_t i = 0; i + 1 < rank; ++i) offset += index[i] * entry.strides[i];
    const std::byte* element = from + static_cast<std::size_t>(offset) * element_bytes;
    for (std::size_t i = 0; i < row_elements; ++i, to += element_bytes) {
      std::memcpy(to, element + i * row_step, element_bytes);
    }
    std::size_t carried = rank - 1;
    while (carried > 0 && ++index[carried - 1] == entry.shape[carried - 1]) index[--carried] = 0;
    if (carried == 0) return;
  }
}

}  // namespace

std::optional<DType> weight_dtype(std::string_view name) {
  if (name == "F32") return DType::f32;
  if (name == "F16") return DType::f16;
  if (name == "BF16") return DType::bf16;
  return std::nullopt;
}

void copy_elements(const TensorEntry& entry, const std::byte* from, std::size_t element_bytes, std::byte* to) {
  if (!entry.strides.empty()) return copy_strided(entry, from, element_bytes, to);
  std::memcpy(to, from, static_cast<std::size_t>(num_elements(entry.shape)) * element_bytes);
}

}  // namespace pagoda::io

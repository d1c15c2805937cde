#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/dtype.hpp"

namespace pagoda::io {

/// A tensor as the header of a weights file describes it.
struct TensorEntry {
  std::string dtype;  ///< element type in safetensors' notation, for example "BF16"
  std::vector<std::int64_t> shape;
  /// Range of the bytes that the tensor uses, from the start of the file; `end` is exclusive.
  std::size_t begin = 0;
  std::size_t end = 0;
  /// Steps between elements along each dimension, in elements; empty for a row-major tensor. Steps are never negative
  /// and never lead out of [begin, end). With a step of 0 a tensor may have more elements than these bytes hold.
  std::vector<std::int64_t> strides = {};
};

inline std::int64_t num_elements(std::span<const std::int64_t> shape) {
  std::int64_t elements = 1;
  for (const auto dimension : shape) elements *= dimension;
  return elements;
}

/// Tensors of a file by name.
using TensorEntries = std::map<std::string, TensorEntry, std::less<>>;

/// Returns the type of weights that safetensors calls F32, F16 or BF16; nothing for other types.
std::optional<DType> weight_dtype(std::string_view name);

/// Copies the elements of a tensor to `to` in row-major order. `from`: its first byte, at entry.begin in the file. The
/// tensor has no more elements than its bytes hold.
void copy_elements(const TensorEntry& entry, const std::byte* from, std::size_t element_bytes, std::byte* to);

/// Limit on the dimensions of a tensor, in addition to the limits of the formats.
inline constexpr std::size_t kMaxTensorRank = 16;

}  // namespace pagoda::io

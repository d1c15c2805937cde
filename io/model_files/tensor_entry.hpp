#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <vector>

namespace pagoda::io {

/// One tensor as the header of a weights file describes it.
struct TensorEntry {
  std::string dtype;  ///< in the words of safetensors, for example "BF16"
  std::vector<std::int64_t> shape;
  /// Of the first to the last byte that the tensor uses, from the start of the file.
  std::size_t begin = 0;
  std::size_t end = 0;
  /// Steps between elements along each dimension, in elements; empty for a tensor that lies row-major. Never negative,
  /// and never out of [begin, end); with a step of 0 a tensor may have more elements than these bytes hold.
  std::vector<std::int64_t> strides = {};
};

inline std::int64_t num_elements(std::span<const std::int64_t> shape) {
  std::int64_t elements = 1;
  for (const auto dimension : shape) elements *= dimension;
  return elements;
}

/// The tensors of a file by name.
using TensorEntries = std::map<std::string, TensorEntry, std::less<>>;

/// Limit on the dimensions of a tensor, beyond what the formats themselves demand.
inline constexpr std::size_t kMaxTensorRank = 16;

}  // namespace pagoda::io

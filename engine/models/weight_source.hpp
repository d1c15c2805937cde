#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/dtype.hpp"
#include "kernels/result.hpp"

namespace pagoda::models {

/// A tensor inside a checkpoint: row-major, not owned. Valid as long as the WeightSource lives.
struct WeightTensor {
  std::string name;
  DType dtype = DType::f32;
  std::vector<std::int64_t> shape;
  const void* data = nullptr;  ///< aligned to the element size at least

  std::int64_t elements() const {
    std::int64_t n = 1;
    for (auto d : shape) n *= d;
    return n;
  }
};

/// Where a model's weights come from. Implemented in io/ by checkpoint formats; tensors carry Hugging Face names.
class WeightSource {
 public:
  virtual ~WeightSource() = default;

  /// The tensor called `name` with exactly this shape. A missing tensor or another shape is bad_file with a message
  /// that names file, tensor and reason.
  virtual Result<WeightTensor> tensor(std::string_view name, const std::vector<std::int64_t>& shape) const = 0;

  virtual bool contains(std::string_view name) const = 0;
};

}  // namespace pagoda::models

#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/device.hpp"
#include "kernels/dtype.hpp"
#include "kernels/ops.hpp"
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

/// A quantised matrix and its memory.
struct QuantizedWeights {
  kernels::QuantizedMatrix matrix;
  kernels::Buffer data;
  kernels::Buffer scales;
};

/// What a linear layer multiplies with: a quantised matrix where there is one, else a plain one.
struct LinearWeight {
  kernels::WeightMatrix plain;
  std::shared_ptr<const QuantizedWeights> quantized;
};

/// Where a model's weights come from. Implemented in io/ by checkpoint formats; tensors carry Hugging Face names.
class WeightSource {
 public:
  virtual ~WeightSource() = default;

  /// The tensor called `name` with exactly this shape. A missing tensor or another shape is bad_file with a message
  /// that names file, tensor and reason.
  virtual Result<WeightTensor> tensor(std::string_view name, const std::vector<std::int64_t>& shape) const = 0;

  virtual bool contains(std::string_view name) const = 0;

  /// The weight [rows, columns] of the linear layer `module`, "model.layers.0.mlp.up_proj" for example. Errors as
  /// tensor().
  virtual Result<LinearWeight> linear(std::string_view module, std::int64_t rows, std::int64_t columns) const {
    auto weight = tensor(std::string(module) + ".weight", {rows, columns});
    if (!weight) return fail(std::move(weight.error()));
    return LinearWeight{{weight->data, weight->dtype, rows, columns}, nullptr};
  }

  /// The same for a layer whose weight the model has made itself, from other tensors.
  virtual Result<LinearWeight> linear(std::string_view module, const kernels::WeightMatrix& own) const {
    static_cast<void>(module);
    return LinearWeight{own, nullptr};
  }
};

}  // namespace pagoda::models

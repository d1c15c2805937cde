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

namespace pagoda::weights {

/// A tensor of a checkpoint, in memory that ops read: row-major, not owned. Valid as long as the WeightSource lives.
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
  kernels::Buffer mins;  ///< of an asymmetric format
};

/// A linear layer's weight that a model does not take from the source as it is: one that it has made itself of other
/// tensors, in `memory`, which the host reads; or a tensor that the source has given it before (a head tied to the
/// embedding), then without memory.
struct OwnWeight {
  kernels::WeightMatrix matrix;
  std::shared_ptr<const kernels::Buffer> memory = nullptr;
};

/// What a linear layer multiplies with: a quantised matrix where there is one, else a plain one.
struct LinearWeight {
  kernels::WeightMatrix plain;
  std::shared_ptr<const QuantizedWeights> quantized;
  std::shared_ptr<const kernels::Buffer> memory = nullptr;  ///< of a plain matrix that does not lie in the source
};

/// Where a model's weights come from. Implemented in io/ by checkpoint formats; tensors carry Hugging Face names.
class WeightSource {
 public:
  virtual ~WeightSource() = default;

  /// The tensor called `name` with exactly this shape. A missing tensor or another shape is bad_file with a message
  /// that names file, tensor and reason.
  virtual Result<WeightTensor> tensor(std::string_view name, const std::vector<std::int64_t>& shape) const = 0;

  /// The same in memory that the host reads, for weights of which a model makes others.
  virtual Result<WeightTensor> host_tensor(std::string_view name, const std::vector<std::int64_t>& shape) const {
    return tensor(name, shape);
  }

  virtual bool contains(std::string_view name) const = 0;

  /// A hint: the bytes of the tensor have been copied, and their memory may serve others until they are read again.
  virtual void copied(const WeightTensor& tensor) const { static_cast<void>(tensor); }

  /// The weight [rows, columns] of the linear layer `module`, "model.layers.0.mlp.up_proj" for example. Errors as
  /// tensor().
  virtual Result<LinearWeight> linear(std::string_view module, std::int64_t rows, std::int64_t columns) const {
    auto weight = tensor(std::string(module) + ".weight", {rows, columns});
    if (!weight) return fail(std::move(weight.error()));
    return LinearWeight{{weight->data, weight->dtype, rows, columns}, nullptr};
  }

  /// The same for a layer with a weight of the model's own. Errors: those of the source's memory.
  virtual Result<LinearWeight> linear(std::string_view module, const OwnWeight& own) const {
    static_cast<void>(module);
    return LinearWeight{own.matrix, nullptr, own.memory};
  }
};

}  // namespace pagoda::weights

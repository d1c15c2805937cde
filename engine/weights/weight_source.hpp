#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/device.hpp"
#include "kernels/dtype.hpp"
#include "kernels/ops.hpp"
#include "kernels/result.hpp"

namespace pagoda::weights {

/// One row in the arithmetic of kernels::QuantizedMatrix, not yet in panels.
struct UnpackedRow {
  std::uint8_t* q = nullptr;  ///< [columns]
  Float16* scales = nullptr;  ///< [columns / group_size], of a format with two-level scales [columns / 256]; rounded up
  Float16* mins = nullptr;    ///< likewise, of an asymmetric format
  std::int8_t* factors = nullptr;      ///< [columns / group_size] of a format with two-level scales
  std::int8_t* min_factors = nullptr;  ///< likewise, of one that is asymmetric, too
};

/// A matrix of 8-bit floats with scales as kernels::WeightMatrix has them.
struct Float8Weights {
  const std::byte* data = nullptr;  ///< Float8E4M3 [rows, columns]
  std::vector<float> scales;
  std::int64_t scale_rows = 1;
  std::int64_t scale_columns = 0;
};

/// The rows of a matrix that a checkpoint holds quantised. Implemented in io/ by file formats; thread-safe.
class QuantizedRows {
 public:
  virtual ~QuantizedRows() = default;

  /// How kernels hold the matrix in integers. None where none of their formats has the file's arithmetic (8-bit floats,
  /// some tables of values): where it is no float8() either, the matrix can only be used dequantised, whatever the
  /// policy.
  virtual std::optional<kernels::QuantizedFormat> format() const = 0;
  /// The matrix, where it is one that linear layers take as it is; it has no format then. Else null. Not owned.
  virtual const Float8Weights* float8() const { return nullptr; }
  /// Of a matrix that has a format: kernels::QuantizedMatrix's order [columns], in which rows are unpacked. Empty =
  /// columns are as they are.
  virtual std::span<const std::int32_t> order() const { return {}; }
  /// Row `row` of a matrix that has a format.
  virtual void unpack(std::int64_t row, const UnpackedRow& to) const = 0;
  /// The same row [columns], each weight as the file's format defines it.
  virtual void dequantize(std::int64_t row, float* to) const = 0;
};

/// A tensor of a checkpoint, in memory that ops read: row-major, not owned. Valid as long as the WeightSource lives.
struct WeightTensor {
  std::string name;
  DType dtype = DType::f32;
  std::vector<std::int64_t> shape;
  const void* data = nullptr;  ///< aligned to the element size at least; null where it is quantised
  /// A matrix that the checkpoint holds quantised; dtype and bytes() are then those of its dequantised weights.
  std::shared_ptr<const QuantizedRows> quantized = nullptr;

  std::int64_t elements() const {
    std::int64_t n = 1;
    for (auto d : shape) n *= d;
    return n;
  }
  std::int64_t bytes() const { return elements() * static_cast<std::int64_t>(size_of(dtype)); }
};

/// A quantised matrix and its memory.
struct QuantizedWeights {
  kernels::QuantizedMatrix matrix;
  kernels::Buffer data;
  kernels::Buffer scales;
  kernels::Buffer mins;     ///< of an asymmetric format
  kernels::Buffer factors;  ///< of a format with two-level scales
  kernels::Buffer order;    ///< where columns are not in order
};

/// A linear layer's weight that is computed from a tensor of the checkpoint; it keeps the tensor's type.
struct DerivedWeight {
  std::string tensor;  ///< full name
  std::int64_t stored_rows = 0;
  std::int64_t stored_columns = 0;
  std::int64_t rows = 0;
  std::int64_t columns = 0;
  /// Fills `weight` [rows, columns] from `stored` [stored_rows, stored_columns], both in the host's memory.
  void (*derive)(const kernels::WeightMatrix& stored, std::byte* weight) = nullptr;
  bool is_transposed = false;  ///< `derive` does nothing but transpose
};

/// The matrix of a linear layer or an embedding: a quantised one where there is one, else a plain one.
struct LinearWeight {
  kernels::WeightMatrix plain;
  std::shared_ptr<const QuantizedWeights> quantized = nullptr;
  std::shared_ptr<const kernels::Buffer> memory = nullptr;  ///< of a plain matrix that does not lie in the source
};

/// Where a model's weights come from. Implemented in io/ by checkpoint formats; tensors carry Hugging Face names.
class WeightSource {
 public:
  virtual ~WeightSource() = default;

  /// The tensor called `name` with exactly this shape. A missing tensor or another shape is bad_file with a message
  /// that names file, tensor and reason.
  virtual Result<WeightTensor> tensor(std::string_view name, const std::vector<std::int64_t>& shape) const = 0;

  /// The same without its data, so that nothing is read and the tensor does not count as taken. Errors as tensor().
  virtual Result<WeightTensor> describe(std::string_view name, const std::vector<std::int64_t>& shape) const {
    return tensor(name, shape);
  }

  virtual bool contains(std::string_view name) const = 0;

  /// Whether the checkpoint holds the weight of `module` as a model would derive it (derived_linear), under the
  /// module's own name: formats that transpose when they are written.
  virtual bool holds_derived(std::string_view module) const {
    static_cast<void>(module);
    return false;
  }

  /// The file that holds `tensor`, for messages; empty where there is none.
  virtual std::string file_of(const WeightTensor& tensor) const {
    static_cast<void>(tensor);
    return {};
  }

  /// A hint: the bytes of the tensor have been copied, and their memory may serve others until they are read again.
  virtual void copied(const WeightTensor& tensor) const { static_cast<void>(tensor); }

  /// The weight [rows, columns] of the linear layer `module`, "model.layers.0.mlp.up_proj" for example. Errors as
  /// tensor().
  virtual Result<LinearWeight> linear(std::string_view module, std::int64_t rows, std::int64_t columns) const;

  /// The table [rows, columns] of the embedding `module`. Errors as tensor().
  virtual Result<LinearWeight> embedding(std::string_view module, std::int64_t rows, std::int64_t columns) const;

  /// The same for a layer whose weight is another module's `tensor`: a head tied to the embedding.
  virtual Result<LinearWeight> tied_linear(std::string_view module, std::string_view tensor, std::int64_t rows,
                                           std::int64_t columns) const;

  /// The same for a layer whose weight is computed. More errors: out_of_memory.
  virtual Result<LinearWeight> derived_linear(std::string_view module, const DerivedWeight& weight) const;
};

/// `weight` of `stored`, which lies in the host's memory, in host memory of its own. Errors: out_of_memory.
Result<kernels::Buffer> derive(const DerivedWeight& weight, const WeightTensor& stored);

}  // namespace pagoda::weights

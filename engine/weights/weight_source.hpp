#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
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

/// One row of weights in the arithmetic of kernels::QuantizedMatrix, not yet in panels.
struct UnpackedRow {
  std::uint8_t* q = nullptr;           ///< [columns]
  Float16* scales = nullptr;           ///< [columns / group_size], or [columns / 256] with two-level scales; rounded up
  Float16* mins = nullptr;             ///< shaped like scales, for an asymmetric format
  std::int8_t* factors = nullptr;      ///< [columns / group_size], for a format with two-level scales
  std::int8_t* min_factors = nullptr;  ///< shaped like factors, for an asymmetric format with two-level scales
};

/// A matrix of 8-bit floats. Its scales are laid out as in kernels::WeightMatrix.
struct Float8Weights {
  const std::byte* data = nullptr;  ///< Float8E4M3 [rows, columns]; null if `gather` is set
  /// Writes the matrix to memory of rows * columns bytes; set if it does not lie together in the file.
  std::function<void(std::byte* to)> gather = nullptr;
  std::vector<float> scales;
  std::int64_t scale_rows = 1;
  std::int64_t scale_columns = 0;
};

/// The rows of a matrix that a checkpoint holds quantised. File formats in io/ implement it. Thread-safe.
class QuantizedRows {
 public:
  virtual ~QuantizedRows() = default;

  /// Returns the integer format in which kernels hold the matrix. None if no format of the kernels has the file's
  /// arithmetic (8-bit floats, some codebooks). If float8() is null as well, the matrix can only be used dequantised,
  /// whatever the policy is.
  virtual std::optional<kernels::QuantizedFormat> format() const = 0;
  /// Returns the matrix if linear layers use it as it is (it has no format then); otherwise null. The caller does not
  /// own it.
  virtual const Float8Weights* float8() const { return nullptr; }
  /// Returns kernels::QuantizedMatrix's order [columns], in which rows are unpacked; empty = columns are in their own
  /// order. The matrix must have a format.
  virtual std::span<const std::int32_t> order() const { return {}; }
  /// Unpacks row `row` to `to`. The matrix must have a format.
  virtual void unpack(std::int64_t row, const UnpackedRow& to) const = 0;
  /// Writes row `row` [columns] to `to`, each weight as the file's format defines it.
  virtual void dequantize(std::int64_t row, float* to) const = 0;
};

/// A tensor of a checkpoint in memory that ops read. It is row-major, is not owned, and is valid as long as the
/// WeightSource lives.
struct WeightTensor {
  std::string name;
  DType dtype = DType::f32;
  std::vector<std::int64_t> shape;
  const void* data = nullptr;  ///< aligned to the element size at least; null if it is quantised
  /// Set if the checkpoint holds the matrix quantised; dtype and bytes() are then those of its dequantised weights.
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
  kernels::Buffer mins;     ///< set for an asymmetric format
  kernels::Buffer factors;  ///< set for a format with two-level scales
  kernels::Buffer order;    ///< set if columns are not in order
};

/// A linear layer's weight that is computed from a tensor of the checkpoint. It keeps the tensor's type.
struct DerivedWeight {
  std::string tensor;  ///< full name
  std::int64_t stored_rows = 0;
  std::int64_t stored_columns = 0;
  std::int64_t rows = 0;
  std::int64_t columns = 0;
  /// Fills `weight` [rows, columns] from `stored` [stored_rows, stored_columns], both in the host's memory.
  void (*derive)(const kernels::WeightMatrix& stored, std::byte* weight) = nullptr;
  bool is_transposed = false;  ///< whether `derive` only transposes
};

/// The matrix of a linear layer or an embedding: `quantized` if it is set, otherwise `plain`.
struct LinearWeight {
  kernels::WeightMatrix plain;
  std::shared_ptr<const QuantizedWeights> quantized = nullptr;
  std::shared_ptr<const kernels::Buffer> memory = nullptr;  ///< owns a plain matrix that does not lie in the source
};

/// The source of a model's weights. Checkpoint formats in io/ implement it; tensors have Hugging Face names.
class WeightSource {
 public:
  virtual ~WeightSource() = default;

  /// Returns the tensor `name`, which must have exactly this shape. A missing tensor or another shape is bad_file, with
  /// a message that names file, tensor and reason.
  virtual Result<WeightTensor> tensor(std::string_view name, const std::vector<std::int64_t>& shape) const = 0;

  /// Returns the tensor without its data: nothing is read and the tensor does not count as taken. Errors as tensor().
  virtual Result<WeightTensor> describe(std::string_view name, const std::vector<std::int64_t>& shape) const {
    return tensor(name, shape);
  }

  virtual bool contains(std::string_view name) const = 0;

  /// Returns whether the checkpoint holds the weight of `module`, under the module's own name, as a model would derive
  /// it (derived_linear). Formats that transpose when they are written do.
  virtual bool holds_derived(std::string_view module) const {
    static_cast<void>(module);
    return false;
  }

  /// Returns the number of rows of the weight of `module` in the whole model, of which this source has `rows`. They
  /// differ if it has the part of a rank.
  virtual std::int64_t rows_of_whole(std::string_view module, std::int64_t rows) const {
    static_cast<void>(module);
    return rows;
  }

  /// Returns the file that holds `tensor`, for messages; empty if there is none.
  virtual std::string file_of(const WeightTensor& tensor) const {
    static_cast<void>(tensor);
    return {};
  }

  /// Hints that the bytes of the tensor have been copied: their memory may be reused until they are read again.
  virtual void release_pages(const WeightTensor& tensor) const { static_cast<void>(tensor); }

  /// Returns the weight [rows, columns] of the linear layer `module`, for example "model.layers.0.mlp.up_proj". Errors
  /// as tensor().
  virtual Result<LinearWeight> linear(std::string_view module, std::int64_t rows, std::int64_t columns) const;

  /// Returns the table [rows, columns] of the embedding `module`. Errors as tensor().
  virtual Result<LinearWeight> embedding(std::string_view module, std::int64_t rows, std::int64_t columns) const;

  /// Returns the weight of a layer that uses another module's `tensor`: a head tied to the embedding. Errors as
  /// tensor().
  virtual Result<LinearWeight> tied_linear(std::string_view module, std::string_view tensor, std::int64_t rows,
                                           std::int64_t columns) const;

  /// Returns the weight of a layer that is computed from a tensor. Errors as tensor(), and out_of_memory.
  virtual Result<LinearWeight> derived_linear(std::string_view module, const DerivedWeight& weight) const;
};

/// Computes `weight` from `stored`, which lies in the host's memory, into host memory of its own. Errors:
/// out_of_memory.
Result<kernels::Buffer> derive(const DerivedWeight& weight, const WeightTensor& stored);

}  // namespace pagoda::weights

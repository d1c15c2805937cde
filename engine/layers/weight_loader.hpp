#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "engine/weights/weight_source.hpp"
#include "kernels/ops.hpp"
#include "kernels/result.hpp"

namespace pagoda::layers {

/// A weight vector where it lies in the checkpoint. Not owned.
struct WeightVector {
  const void* data = nullptr;
  DType dtype = DType::f32;
};

/// Takes tensors of one module and its children from a WeightSource, as PyTorch names them: `loader / "self_attn"` is
/// the child module. The first tensor that is missing or misshapen is remembered in the Status given at construction;
/// after it every call gives an empty view. So a model lists its weights and looks at the status once.
class WeightLoader {
 public:
  /// Both must outlive the loader and its children.
  WeightLoader(const weights::WeightSource& source, Status& status) : source_(&source), status_(&status) {}

  WeightLoader operator/(std::string_view child) const;
  WeightLoader operator/(std::int64_t index) const { return *this / std::to_string(index); }

  /// The tensor `name` of this module as [rows, columns].
  kernels::WeightMatrix matrix(std::string_view name, std::int64_t rows, std::int64_t columns) const;
  /// The tensor `name` of this module as [size].
  WeightVector vector(std::string_view name, std::int64_t size) const;
  /// The weight [rows, columns] of this module, a linear layer; an embedding; one whose weight is another module's
  /// tensor, by its full name; or one that is computed.
  weights::LinearWeight linear(std::int64_t rows, std::int64_t columns) const;
  weights::LinearWeight embedding(std::int64_t rows, std::int64_t columns) const;
  weights::LinearWeight tied_linear(std::string_view tensor, std::int64_t rows, std::int64_t columns) const;
  weights::LinearWeight derived_linear(const weights::DerivedWeight& weight) const;
  /// The full name of this module, which is not the whole model.
  std::string_view name() const { return std::string_view(prefix_).substr(0, prefix_.size() - 1); }
  /// The full name of the tensor `name` of this module.
  std::string full_name(std::string_view name) const { return prefix_ + std::string(name); }
  bool contains(std::string_view name) const { return source_->contains(full_name(name)); }

  /// Whether everything has been there so far.
  const Status& status() const { return *status_; }
  /// Remembers an error of the caller's own about this module.
  void reject(std::string_view reason) const;

 private:
  weights::LinearWeight keep(Result<weights::LinearWeight> weight) const;
  /// Empty, and the error remembered, when there is one.
  weights::WeightTensor keep(Result<weights::WeightTensor> tensor) const;
  weights::WeightTensor take(std::string_view name, const std::vector<std::int64_t>& shape) const;

  const weights::WeightSource* source_;
  Status* status_;
  std::string prefix_;  // "model.layers.0." or empty
};

}  // namespace pagoda::layers

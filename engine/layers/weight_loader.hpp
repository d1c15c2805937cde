#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "engine/layers/adapter_modules.hpp"
#include "engine/weights/weight_source.hpp"
#include "kernels/ops.hpp"
#include "kernels/result.hpp"

namespace pagoda::layers {

/// View of a weight vector in the checkpoint.
struct WeightVector {
  const void* data = nullptr;
  DType dtype = DType::f32;
};

/// Takes tensors of one module and its children from a WeightSource, under PyTorch's names: `loader / "self_attn"` is
/// the child module. The Status given at construction keeps the error of the first missing or misshapen tensor; every
/// later call returns an empty view. So a model lists its weights and checks the status once.
class WeightLoader {
 public:
  /// `source` and `status` must outlive the loader and its children.
  WeightLoader(const weights::WeightSource& source, Status& status)
      : source_(&source), status_(&status), modules_(std::make_shared<AdapterModules>()) {}

  WeightLoader operator/(std::string_view child) const;
  WeightLoader operator/(std::int64_t index) const { return *this / std::to_string(index); }

  /// Returns the tensor `name` of this module as [rows, columns].
  kernels::WeightMatrix matrix(std::string_view name, std::int64_t rows, std::int64_t columns) const;
  /// Returns the tensor `name` of this module as [size].
  WeightVector vector(std::string_view name, std::int64_t size) const;
  /// Return this module's weight [rows, columns] for: a linear layer; an embedding; a linear layer that uses another
  /// module's tensor, given by its full name; a layer whose weight is computed.
  weights::LinearWeight linear(std::int64_t rows, std::int64_t columns) const;
  weights::LinearWeight embedding(std::int64_t rows, std::int64_t columns) const;
  weights::LinearWeight tied_linear(std::string_view tensor, std::int64_t rows, std::int64_t columns) const;
  weights::LinearWeight derived_linear(const weights::DerivedWeight& weight) const;
  /// Returns the full name of this module, which must not be the whole model.
  std::string_view name() const { return std::string_view(prefix_).substr(0, prefix_.size() - 1); }
  /// Returns the full name of the tensor `name` of this module.
  std::string full_name(std::string_view name) const { return prefix_ + std::string(name); }
  bool contains(std::string_view name) const { return source_->contains(full_name(name)); }

  /// Returns the first error so far.
  const Status& status() const { return *status_; }
  /// Returns the modules that the layers have offered to adapters, for the model that is built. All children share it.
  const std::shared_ptr<AdapterModules>& modules() const { return modules_; }
  /// Records `reason` as the error of this module, unless there already is an error.
  void reject(std::string_view reason) const;

 private:
  weights::LinearWeight or_record_error(Result<weights::LinearWeight> weight) const;
  /// Returns the tensor, or records the error and returns an empty tensor.
  weights::WeightTensor or_record_error(Result<weights::WeightTensor> tensor) const;
  weights::WeightTensor tensor(std::string_view name, const std::vector<std::int64_t>& shape) const;

  const weights::WeightSource* source_;
  Status* status_;
  std::shared_ptr<AdapterModules> modules_;
  std::string prefix_;  // "model.layers.0." or empty
};

}  // namespace pagoda::layers

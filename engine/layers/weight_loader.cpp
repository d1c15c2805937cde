#include "engine/layers/weight_loader.hpp"

#include <utility>

namespace pagoda::layers {

WeightLoader WeightLoader::operator/(std::string_view child) const {
  WeightLoader loader = *this;
  loader.prefix_.append(child).push_back('.');
  return loader;
}

kernels::WeightMatrix WeightLoader::matrix(std::string_view name, std::int64_t rows, std::int64_t columns) const {
  const auto view = tensor(name, {rows, columns});
  return {view.data, view.dtype, rows, columns};
}

WeightVector WeightLoader::vector(std::string_view name, std::int64_t size) const {
  const auto view = tensor(name, {size});
  return {view.data, view.dtype};
}

weights::LinearWeight WeightLoader::linear(std::int64_t rows, std::int64_t columns) const {
  return *status_ ? or_record_error(source_->linear(name(), rows, columns)) : weights::LinearWeight{};
}

weights::LinearWeight WeightLoader::embedding(std::int64_t rows, std::int64_t columns) const {
  return *status_ ? or_record_error(source_->embedding(name(), rows, columns)) : weights::LinearWeight{};
}

weights::LinearWeight WeightLoader::tied_linear(std::string_view tensor, std::int64_t rows,
                                                std::int64_t columns) const {
  return *status_ ? or_record_error(source_->tied_linear(name(), tensor, rows, columns)) : weights::LinearWeight{};
}

weights::LinearWeight WeightLoader::derived_linear(const weights::DerivedWeight& weight) const {
  modules_->note(name());
  return *status_ ? or_record_error(source_->derived_linear(name(), weight)) : weights::LinearWeight{};
}

weights::LinearWeight WeightLoader::or_record_error(Result<weights::LinearWeight> weight) const {
  if (weight) return std::move(*weight);
  *status_ = fail(std::move(weight.error()));
  return {};
}

void WeightLoader::reject(std::string_view reason) const {
  if (!*status_) return;
  *status_ = fail(ErrorCode::bad_file, "module " + std::string(name()) + ": " + std::string(reason));
}

weights::WeightTensor WeightLoader::tensor(std::string_view name, const std::vector<std::int64_t>& shape) const {
  if (!prefix_.empty()) modules_->note(this->name());
  return *status_ ? or_record_error(source_->tensor(full_name(name), shape)) : weights::WeightTensor{};
}

weights::WeightTensor WeightLoader::or_record_error(Result<weights::WeightTensor> tensor) const {
  if (tensor) return std::move(*tensor);
  *status_ = fail(std::move(tensor.error()));
  return {};
}

}  // namespace pagoda::layers

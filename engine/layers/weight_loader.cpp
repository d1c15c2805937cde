#include "engine/layers/weight_loader.hpp"

#include <utility>

namespace pagoda::layers {

WeightLoader WeightLoader::operator/(std::string_view child) const {
  WeightLoader loader = *this;
  loader.prefix_.append(child).push_back('.');
  return loader;
}

kernels::WeightMatrix WeightLoader::matrix(std::string_view name, std::int64_t rows, std::int64_t columns) const {
  const auto tensor = take(name, {rows, columns});
  return {tensor.data, tensor.dtype, rows, columns};
}

WeightVector WeightLoader::vector(std::string_view name, std::int64_t size) const {
  const auto tensor = take(name, {size});
  return {tensor.data, tensor.dtype};
}

void WeightLoader::reject(std::string_view reason) const {
  if (!*status_) return;
  *status_ = fail(ErrorCode::bad_file, "module " + prefix_.substr(0, prefix_.size() - 1) + ": " + std::string(reason));
}

models::WeightTensor WeightLoader::take(std::string_view name, const std::vector<std::int64_t>& shape) const {
  if (!*status_) return {};
  auto tensor = source_->tensor(prefix_ + std::string(name), shape);
  if (tensor) return std::move(*tensor);
  *status_ = fail(std::move(tensor.error()));
  return {};
}

}  // namespace pagoda::layers

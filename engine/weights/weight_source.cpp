#include "engine/weights/weight_source.hpp"

#include <utility>

#include "kernels/host_memory.hpp"

namespace pagoda::weights {

Result<LinearWeight> WeightSource::linear(std::string_view module, std::int64_t rows, std::int64_t columns) const {
  return WeightSource::tied_linear(module, std::string(module) + ".weight", rows, columns);
}

Result<LinearWeight> WeightSource::embedding(std::string_view module, std::int64_t rows, std::int64_t columns) const {
  return WeightSource::tied_linear(module, std::string(module) + ".weight", rows, columns);
}

Result<LinearWeight> WeightSource::tied_linear(std::string_view module, std::string_view tensor, std::int64_t rows,
                                               std::int64_t columns) const {
  static_cast<void>(module);
  auto weight = this->tensor(tensor, {rows, columns});
  if (!weight) return fail(std::move(weight.error()));
  return LinearWeight{.plain = {weight->data, weight->dtype, rows, columns}};
}

Result<LinearWeight> WeightSource::derived_linear(std::string_view module, const DerivedWeight& weight) const {
  if (holds_derived(module)) return linear(module, weight.rows, weight.columns);
  const auto stored = tensor(weight.tensor, {weight.stored_rows, weight.stored_columns});
  if (!stored) return fail(stored.error());
  auto memory = derive(weight, *stored);
  if (!memory) return fail(std::move(memory.error()));
  auto kept = std::make_shared<const kernels::Buffer>(std::move(*memory));
  return LinearWeight{.plain = {kept->data(), stored->dtype, weight.rows, weight.columns}, .memory = kept};
}

Result<kernels::Buffer> derive(const DerivedWeight& weight, const WeightTensor& stored) {
  const auto bytes = static_cast<std::size_t>(weight.rows * weight.columns) * size_of(stored.dtype);
  auto memory = kernels::allocate_host_memory(bytes);
  if (!memory) return memory;
  weight.derive({stored.data, stored.dtype, weight.stored_rows, weight.stored_columns}, memory->as<std::byte>());
  return memory;
}

}  // namespace pagoda::weights

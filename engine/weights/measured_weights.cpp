#include "engine/weights/measured_weights.hpp"

#include <utility>

namespace pagoda::weights {

Result<WeightTensor> MeasuredWeights::tensor(std::string_view name, const std::vector<std::int64_t>& shape) const {
  auto tensor = stored_.describe(name, shape);
  if (!tensor) return tensor;
  const DType dtype = policy_.dtype.value_or(tensor->dtype);
  const bool converts = tensor->quantized != nullptr || dtype != tensor->dtype;
  tensor->dtype = dtype;
  tensor->data = nullptr;
  tensor->quantized = nullptr;
  tensors_[tensor->name] = {tensor->bytes(), converts};
  return tensor;
}

Result<LinearWeight> MeasuredWeights::linear(std::string_view module, std::int64_t rows, std::int64_t columns) const {
  const auto stored = stored_.describe(std::string(module) + ".weight", {rows, columns});
  if (!stored) return fail(stored.error());
  if (const auto format = policy_.kept_format(*stored)) {
    return count_quantized(stored->name, rows, columns, *format, stored->quantized->order().data());
  }
  if (const Float8Weights* kept = policy_.kept_float8(*stored)) {
    const kernels::WeightMatrix matrix{.dtype = DType::fp8_e4m3,
                                       .rows = rows,
                                       .columns = columns,
                                       .scales = kept->scales.data(),
                                       .scale_rows = kept->scale_rows,
                                       .scale_columns = kept->scale_columns};
    // A CPU uses the scales in the memory to which the file's reader wrote them.
    linears_[std::string(module)] = {rows * columns + (policy_.on_gpu ? matrix.scale_bytes() : 0),
                                     policy_.copy_linear || kept->gather};
    return LinearWeight{.plain = matrix};
  }
  if (const auto format = policy_.format_of(module, stored_.rows_of_whole(module, rows), columns))
    return count_quantized(module, rows, columns, *format);
  const bool converts = stored->quantized != nullptr || policy_.dtype.value_or(stored->dtype) != stored->dtype;
  if (converts || !policy_.copy_linear) return WeightSource::linear(module, rows, columns);
  linears_[std::string(module)] = {stored->bytes(), true};
  return LinearWeight{.plain = {nullptr, stored->dtype, rows, columns}};
}

Result<LinearWeight> MeasuredWeights::embedding(std::string_view module, std::int64_t rows,
                                                std::int64_t columns) const {
  const auto stored = stored_.describe(std::string(module) + ".weight", {rows, columns});
  if (!stored) return fail(stored.error());
  if (const auto format = policy_.kept_table_format(*stored))
    return count_quantized(stored->name, rows, columns, *format);
  return WeightSource::embedding(module, rows, columns);
}

Result<LinearWeight> MeasuredWeights::tied_linear(std::string_view module, std::string_view tensor, std::int64_t rows,
                                                  std::int64_t columns) const {
  const auto stored = stored_.describe(tensor, {rows, columns});
  if (!stored) return fail(stored.error());
  if (const auto format = policy_.kept_format(*stored)) {
    return count_quantized(stored->name, rows, columns, *format, stored->quantized->order().data());
  }
  const auto format = policy_.format_of(module, stored_.rows_of_whole(module, rows), columns);
  if (format && stored->quantized != nullptr) return count_quantized(module, rows, columns, *format);
  auto weight = WeightSource::tied_linear(module, tensor, rows, columns);
  if (!weight) return weight;
  if (format) return count_quantized(module, rows, columns, *format);
  const bool is_copy = stored->quantized != nullptr || weight->plain.dtype != stored->dtype;
  if (policy_.copy_linear && !is_copy) linears_[std::string(module)] = {stored->bytes(), true};
  return weight;
}

Result<LinearWeight> MeasuredWeights::derived_linear(std::string_view module, const DerivedWeight& weight) const {
  if (holds_derived(module)) return linear(module, weight.rows, weight.columns);
  const auto stored = stored_.describe(weight.tensor, {weight.stored_rows, weight.stored_columns});
  if (!stored) return fail(stored.error());
  if (const auto format = policy_.format_of(module, stored_.rows_of_whole(module, weight.rows), weight.columns)) {
    return count_quantized(module, weight.rows, weight.columns, *format);
  }
  const DType dtype = policy_.dtype.value_or(stored->dtype);
  linears_[std::string(module)] = {weight.rows * weight.columns * static_cast<std::int64_t>(size_of(dtype)), true};
  return LinearWeight{.plain = {nullptr, dtype, weight.rows, weight.columns}};
}

LinearWeight MeasuredWeights::count_quantized(std::string_view module, std::int64_t rows, std::int64_t columns,
                                              const kernels::QuantizedFormat& format, const std::int32_t* order) const {
  auto weights = std::make_shared<QuantizedWeights>();
  weights->matrix = {.rows = rows, .columns = columns, .format = format};
  weights->matrix.order = order;
  linears_[std::string(module)] = {weights->matrix.bytes(), true};
  return {.plain = {}, .quantized = std::move(weights)};
}

std::int64_t MeasuredWeights::loaded_bytes() const {
  std::int64_t bytes = 0;
  for (const auto* taken : {&tensors_, &linears_}) {
    for (const auto& [name, weight] : *taken) bytes += weight.bytes;
  }
  return bytes;
}

std::int64_t MeasuredWeights::copied_bytes() const {
  std::int64_t bytes = 0;
  for (const auto* taken : {&tensors_, &linears_}) {
    for (const auto& [name, weight] : *taken) bytes += weight.is_copy ? weight.bytes : 0;
  }
  return bytes;
}

}  // namespace pagoda::weights

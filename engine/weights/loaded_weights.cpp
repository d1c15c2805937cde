#include "engine/weights/loaded_weights.hpp"

#include <algorithm>
#include <charconv>
#include <system_error>
#include <utility>

namespace pagoda::weights {
namespace {

constexpr std::string_view kHead = "lm_head";

/// Returns the N of "model.layers.N.mlp.down_proj"; none if no part of the name is a number.
std::optional<int> layer_of(std::string_view module) {
  while (!module.empty()) {
    const std::string_view part = module.substr(0, module.find('.'));
    int layer = 0;
    const auto [end, error] = std::from_chars(part.data(), part.data() + part.size(), layer);
    if (error == std::errc() && end == part.data() + part.size()) return layer;
    module.remove_prefix(std::min(module.size(), part.size() + 1));
  }
  return std::nullopt;
}

/// Returns the format that holds a matrix of a file's format: GPU kernels take no less than 4 bits.
std::optional<kernels::QuantizedFormat> held_format(std::optional<kernels::QuantizedFormat> format, bool on_gpu) {
  if (format && on_gpu) format->bits = std::max(format->bits, 4);
  return format;
}

std::string weight_of(std::string_view module) {
  return std::string(module) + ".weight";
}

}  // namespace

std::optional<kernels::QuantizedFormat> WeightPolicy::format_of(std::string_view module, std::int64_t rows,
                                                                std::int64_t columns) const {
  if (!quantize) return std::nullopt;
  const bool is_head = module == kHead;
  if (quantize != kernels::kInt4Weights) return is_head ? kernels::kInt8Weights : *quantize;
  if (on_gpu) return is_head ? kernels::kInt8Weights : kernels::kPlainInt4Weights;
  const bool is_shared = module.ends_with("v_proj") && 2 * rows <= columns;
  const bool is_third = module.ends_with("down_proj") && layer_of(module).value_or(0) % 3 == 2;
  return is_head || is_shared || is_third ? kernels::kInt6Weights : *quantize;
}

std::optional<kernels::QuantizedFormat> WeightPolicy::kept_format(const WeightTensor& tensor) const {
  if (!keep_quantized || tensor.quantized == nullptr) return std::nullopt;
  return held_format(tensor.quantized->format(), on_gpu);
}

const Float8Weights* WeightPolicy::kept_float8(const WeightTensor& tensor) const {
  return keep_quantized && tensor.quantized != nullptr ? tensor.quantized->float8() : nullptr;
}

std::optional<kernels::QuantizedFormat> WeightPolicy::kept_table_format(const WeightTensor& tensor) const {
  const bool keeps = keep_quantized || quantize;
  if (!keeps || tensor.quantized == nullptr || !tensor.quantized->order().empty()) return std::nullopt;
  return held_format(tensor.quantized->format(), on_gpu);
}

WeightPolicy weight_policy(const std::string& dtype, const std::string& quantize) {
  WeightPolicy policy;
  for (const DType known : {DType::f32, DType::f16, DType::bf16}) {
    if (dtype == to_string(known)) policy.dtype = known;
  }
  PAGODA_ASSERT(policy.dtype || dtype == "auto", "there is no such dtype");
  if (quantize == "int8") policy.quantize = kernels::kInt8Weights;
  if (quantize == "int4") policy.quantize = kernels::kInt4Weights;
  policy.keep_quantized = quantize == "auto";
  PAGODA_ASSERT(policy.quantize || policy.keep_quantized || quantize == "none", "there is no such quantisation");
  return policy;
}

Result<WeightTensor> LoadedWeights::tensor(std::string_view name, const std::vector<std::int64_t>& shape) const {
  auto tensor = stored_.tensor(name, shape);
  if (!tensor) return tensor;
  const DType dtype = policy_.dtype.value_or(tensor->dtype);
  if (tensor->quantized == nullptr && tensor->dtype == dtype) return tensor;
  const std::lock_guard lock(mutex_);
  auto found = converted_.find(name);
  if (found == converted_.end()) {
    auto copy = converter_.convert(*tensor, dtype, "converted " + std::string(name));
    if (!copy) return fail(std::move(copy.error()));
    found = converted_.emplace(std::string(name), std::move(*copy)).first;
    report(static_cast<std::int64_t>(found->second.bytes()));
  }
  stored_.release_pages(*tensor);
  tensor->dtype = dtype;
  tensor->data = found->second.data();
  tensor->quantized = nullptr;
  return tensor;
}

Result<LinearWeight> LoadedWeights::linear(std::string_view module, std::int64_t rows, std::int64_t columns) const {
  const auto weight = stored_.tensor(weight_of(module), {rows, columns});
  if (!weight) return fail(weight.error());
  if (const auto format = policy_.kept_format(*weight)) return packed(*weight, *format);
  if (const Float8Weights* kept = policy_.kept_float8(*weight)) return float8(module, *weight, *kept);
  if (const auto format = policy_.format_of(module, stored_.rows_of_whole(module, rows), columns)) {
    auto quantized = quantize(module, *weight, *format);
    if (quantized) stored_.release_pages(*weight);
    return quantized;
  }
  const bool converts = weight->quantized != nullptr || policy_.dtype.value_or(weight->dtype) != weight->dtype;
  if (converts || !policy_.copy_linear) return WeightSource::linear(module, rows, columns);
  auto copied = copy(module, {weight->data, weight->dtype, rows, columns});
  if (copied) stored_.release_pages(*weight);
  return copied;
}

Result<LinearWeight> LoadedWeights::embedding(std::string_view module, std::int64_t rows, std::int64_t columns) const {
  const auto weight = stored_.tensor(weight_of(module), {rows, columns});
  if (!weight) return fail(weight.error());
  if (const auto format = policy_.kept_table_format(*weight)) return packed(*weight, *format);
  return WeightSource::embedding(module, rows, columns);
}

Result<LinearWeight> LoadedWeights::tied_linear(std::string_view module, std::string_view tensor, std::int64_t rows,
                                                std::int64_t columns) const {
  const auto stored = stored_.tensor(tensor, {rows, columns});
  if (!stored) return fail(stored.error());
  if (const auto kept = policy_.kept_format(*stored)) return packed(*stored, *kept);
  const auto format = policy_.format_of(module, stored_.rows_of_whole(module, rows), columns);
  if (format && stored->quantized != nullptr) {
    auto quantized = quantize(module, *stored, *format);
    if (quantized) stored_.release_pages(*stored);
    return quantized;
  }
  auto weight = WeightSource::tied_linear(module, tensor, rows, columns);
  if (!weight) return weight;
  if (format) {
    return quantize(module, {std::string(tensor), weight->plain.dtype, {rows, columns}, weight->plain.data}, *format);
  }
  const bool is_copy = stored->quantized != nullptr || weight->plain.dtype != stored->dtype;
  return policy_.copy_linear && !is_copy ? copy(module, weight->plain) : weight;
}

Result<LinearWeight> LoadedWeights::derived_linear(std::string_view module, const DerivedWeight& weight) const {
  if (holds_derived(module)) return linear(module, weight.rows, weight.columns);
  const std::lock_guard lock(derived_mutex_);
  auto found = derived_.find(module);
  if (found == derived_.end()) {
    auto derived = make_derived(module, weight);
    if (!derived) return derived;
    found = derived_.emplace(std::string(module), std::move(*derived)).first;
  }
  return found->second;
}

/// Drops the tensor's converted copy, if it needs one: a model uses only the derived weight.
Result<LinearWeight> LoadedWeights::make_derived(std::string_view module, const DerivedWeight& weight) const {
  const auto stored = stored_.tensor(weight.tensor, {weight.stored_rows, weight.stored_columns});
  if (!stored) return fail(stored.error());
  const auto plain = as_plain(*stored, policy_.dtype.value_or(stored->dtype));
  if (!plain) return fail(plain.error());
  auto memory = derive(weight, plain->tensor);
  if (!memory) return fail(std::move(memory.error()));
  stored_.release_pages(*stored);
  const kernels::WeightMatrix matrix{memory->data(), plain->tensor.dtype, weight.rows, weight.columns};
  if (const auto format = policy_.format_of(module, stored_.rows_of_whole(module, weight.rows), weight.columns)) {
    return quantize(module, {weight.tensor, matrix.dtype, {matrix.rows, matrix.columns}, matrix.data}, *format);
  }
  report(static_cast<std::int64_t>(memory->bytes()));
  return LinearWeight{.plain = matrix, .memory = std::make_shared<const kernels::Buffer>(std::move(*memory))};
}

Result<LoadedWeights::PlainTensor> LoadedWeights::as_plain(const WeightTensor& tensor, DType dtype) const {
  PlainTensor plain{.tensor = tensor, .memory = {}};
  if (tensor.quantized == nullptr && tensor.dtype == dtype) return plain;
  auto copy = converter_.convert(tensor, dtype);
  if (!copy) return fail(std::move(copy.error()));
  plain.memory = std::move(*copy);
  plain.tensor.dtype = dtype;
  plain.tensor.data = plain.memory.data();
  plain.tensor.quantized = nullptr;
  return plain;
}

Result<LinearWeight> LoadedWeights::copy(std::string_view module, const kernels::WeightMatrix& matrix) const {
  const std::lock_guard lock(mutex_);
  auto found = copied_.find(module);
  if (found == copied_.end()) {
    auto memory = converter_.convert({std::string(module), matrix.dtype, {matrix.rows, matrix.columns}, matrix.data},
                                     matrix.dtype, "copied " + std::string(module));
    if (!memory) return fail(std::move(memory.error()));
    found = copied_.emplace(std::string(module), std::move(*memory)).first;
    report(static_cast<std::int64_t>(found->second.bytes()));
  }
  kernels::WeightMatrix copy = matrix;
  copy.data = found->second.data();
  return LinearWeight{.plain = copy};
}

Result<LinearWeight> LoadedWeights::quantize(std::string_view module, const WeightTensor& tensor,
                                             const kernels::QuantizedFormat& format) const {
  const std::lock_guard lock(mutex_);
  auto found = quantized_.find(module);
  if (found == quantized_.end()) {
    auto weights = converter_.quantize("quantized " + std::string(module), tensor, format);
    if (!weights) {
      weights.error().message = "module " + std::string(module) + ": " + weights.error().message;
      return fail(in_file(tensor, std::move(weights.error())));
    }
    found = quantized_.emplace(std::string(module), std::move(*weights)).first;
    report(found->second->matrix.bytes());
  }
  return LinearWeight{.plain = {}, .quantized = found->second};
}

Result<LinearWeight> LoadedWeights::packed(const WeightTensor& tensor, const kernels::QuantizedFormat& format) const {
  const std::lock_guard lock(mutex_);
  auto found = quantized_.find(tensor.name);
  if (found == quantized_.end()) {
    auto weights = converter_.pack(tensor, format);
    if (!weights) return fail(in_file(tensor, std::move(weights.error())));
    stored_.release_pages(tensor);
    found = quantized_.emplace(tensor.name, std::move(*weights)).first;
    report(found->second->matrix.bytes());
  }
  return LinearWeight{.plain = {}, .quantized = found->second};
}

Result<LinearWeight> LoadedWeights::float8(std::string_view module, const WeightTensor& tensor,
                                           const Float8Weights& weights) const {
  const std::int64_t rows = tensor.shape.at(0);
  const std::int64_t columns = tensor.shape.at(1);
  LinearWeight weight{.plain = {.data = weights.data,
                                .dtype = DType::fp8_e4m3,
                                .rows = rows,
                                .columns = columns,
                                .scales = weights.scales.data(),
                                .scale_rows = weights.scale_rows,
                                .scale_columns = weights.scale_columns}};
  const std::lock_guard lock(mutex_);
  const auto bytes = static_cast<std::size_t>(rows * columns);
  const bool is_copied = policy_.copy_linear || weights.gather;
  if (is_copied && !copied_.contains(module)) {
    const std::string name = "copied " + std::string(module);
    auto memory =
        weights.gather ? converter_.gather(weights.gather, bytes, name) : converter_.copy(weights.data, bytes, name);
    if (!memory) return fail(std::move(memory.error()));
    report(static_cast<std::int64_t>(memory->bytes()));
    copied_.emplace(std::string(module), std::move(*memory));
    stored_.release_pages(tensor);
  }
  if (is_copied) weight.plain.data = copied_.find(module)->second.data();
  if (!float8_.contains(module)) {
    // Kernels widen 8-bit floats as if no weight were NaN.
    const auto* data = static_cast<const std::byte*>(weight.plain.data);
    const bool has_nan =
        std::any_of(data, data + bytes, [](std::byte x) { return (x & std::byte{0x7F}) == std::byte{0x7F}; });
    if (has_nan) {
      return fail(
          in_file(tensor, {ErrorCode::bad_file, "tensor \"" + tensor.name + "\" has a weight that is not a number"}));
    }
    float8_.emplace(std::string(module), tensor.quantized);
  }
  return weight;
}

void LoadedWeights::report(std::int64_t bytes) const {
  if (!progress_.report) return;
  const std::int64_t made = reported_bytes_ += bytes;
  const auto expected = static_cast<double>(std::max<std::int64_t>(1, progress_.expected_bytes));
  progress_.report(std::min(1.0, static_cast<double>(made) / expected));
}

Error LoadedWeights::in_file(const WeightTensor& tensor, Error error) const {
  const std::string file = stored_.file_of(tensor);
  if (error.code == ErrorCode::bad_file && !file.empty()) error.message = file + ": " + error.message;
  return error;
}

std::int64_t LoadedWeights::copied_bytes() const {
  const std::scoped_lock lock(mutex_, derived_mutex_);
  std::int64_t bytes = 0;
  for (const auto& [module, weight] : derived_) {
    if (weight.memory != nullptr) bytes += static_cast<std::int64_t>(weight.memory->bytes());
  }
  for (const auto& [name, buffer] : converted_) bytes += static_cast<std::int64_t>(buffer.bytes());
  for (const auto& [module, buffer] : copied_) bytes += static_cast<std::int64_t>(buffer.bytes());
  for (const auto& [module, weights] : quantized_) bytes += weights->matrix.bytes();
  return bytes;
}

void LoadedWeights::drop_copies() const {
  const std::scoped_lock lock(mutex_, derived_mutex_);
  derived_.clear();
  converted_.clear();
  copied_.clear();
  float8_.clear();
  quantized_.clear();
}

}  // namespace pagoda::weights

#include "engine/weights/loaded_weights.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

namespace pagoda::weights {
namespace {

constexpr std::string_view kHead = "lm_head";

/// Finite values of |x| >= 65520 round to infinity in float16. `least` are the bits of the first such value in the type
/// that `Bits` are of, `infinity` those of infinity.
template <class Bits>
bool all_fit_float16(const void* data, std::int64_t count, Bits least, Bits infinity) {
  constexpr Bits kSign = static_cast<Bits>(Bits{1} << (8 * sizeof(Bits) - 1));
  const auto* bits = static_cast<const Bits*>(data);
  return std::none_of(bits, bits + count, [=](Bits x) {
    const auto magnitude = static_cast<Bits>(x & static_cast<Bits>(~kSign));
    return magnitude >= least && magnitude < infinity;
  });
}

bool fits(const WeightTensor& tensor, DType dtype) {
  if (dtype != DType::f16) return true;
  switch (tensor.dtype) {
    case DType::f32:
      return all_fit_float16<std::uint32_t>(tensor.data, tensor.elements(), 0x477FF000U, 0x7F800000U);
    case DType::bf16:
      return all_fit_float16<std::uint16_t>(tensor.data, tensor.elements(), 0x4780U, 0x7F80U);
    case DType::f16:
    case DType::fp8_e4m3:
    case DType::int8:
      return true;
  }
  return true;
}

}  // namespace

std::optional<kernels::QuantizedFormat> WeightPolicy::format_of(std::string_view module) const {
  return quantize && module == kHead ? kernels::kInt8Weights : quantize;
}

WeightPolicy weight_policy(const std::string& dtype, const std::string& quantize) {
  WeightPolicy policy;
  for (const DType known : {DType::f32, DType::f16, DType::bf16}) {
    if (dtype == to_string(known)) policy.dtype = known;
  }
  PAGODA_ASSERT(policy.dtype || dtype == "auto", "there is no such dtype");
  if (quantize == "int8") policy.quantize = kernels::kInt8Weights;
  if (quantize == "int4") policy.quantize = kernels::kInt4Weights;
  PAGODA_ASSERT(policy.quantize || quantize == "none", "there is no such quantisation");
  return policy;
}

Result<WeightTensor> LoadedWeights::tensor(std::string_view name, const std::vector<std::int64_t>& shape) const {
  auto tensor = stored_.tensor(name, shape);
  if (!tensor || !policy_.dtype || tensor->dtype == *policy_.dtype) return tensor;
  const std::lock_guard lock(mutex_);
  auto found = converted_.find(name);
  if (found == converted_.end()) {
    auto copy = convert(*tensor, *policy_.dtype);
    if (!copy) return fail(std::move(copy.error()));
    stored_.copied(*tensor);
    found = converted_.emplace(std::string(name), std::move(*copy)).first;
  }
  tensor->dtype = *policy_.dtype;
  tensor->data = found->second.data();
  return tensor;
}

Result<LinearWeight> LoadedWeights::linear(std::string_view module, std::int64_t rows, std::int64_t columns) const {
  const auto format = policy_.format_of(module);
  const std::string name = std::string(module) + ".weight";
  const auto weight = stored_.tensor(name, {rows, columns});
  if (!weight) return fail(weight.error());
  const kernels::WeightMatrix matrix{weight->data, weight->dtype, rows, columns};
  const bool converts = policy_.dtype && *policy_.dtype != weight->dtype;
  if (!format && (converts || !policy_.copy_linear)) return WeightSource::linear(module, rows, columns);
  auto loaded = format ? quantize(module, matrix, *format) : copy(module, matrix);
  if (loaded) stored_.copied(*weight);
  return loaded;
}

Result<LinearWeight> LoadedWeights::tied_linear(std::string_view module, std::string_view tensor, std::int64_t rows,
                                                std::int64_t columns) const {
  const auto stored = stored_.tensor(tensor, {rows, columns});
  if (!stored) return fail(stored.error());
  auto weight = WeightSource::tied_linear(module, tensor, rows, columns);
  if (!weight) return weight;
  if (const auto format = policy_.format_of(module)) return quantize(module, weight->plain, *format);
  const bool is_copy = weight->plain.dtype != stored->dtype;
  return policy_.copy_linear && !is_copy ? copy(module, weight->plain) : weight;
}

Result<LinearWeight> LoadedWeights::derived_linear(std::string_view module, const DerivedWeight& weight) const {
  const std::lock_guard lock(derived_mutex_);
  auto found = derived_.find(module);
  if (found == derived_.end()) {
    auto derived = make_derived(module, weight);
    if (!derived) return derived;
    found = derived_.emplace(std::string(module), std::move(*derived)).first;
  }
  return found->second;
}

/// The tensor's converted copy, where it needs one, is let go: a model takes what is derived from it.
Result<LinearWeight> LoadedWeights::make_derived(std::string_view module, const DerivedWeight& weight) const {
  auto stored = stored_.tensor(weight.tensor, {weight.stored_rows, weight.stored_columns});
  if (!stored) return fail(std::move(stored.error()));
  const WeightTensor original = *stored;
  kernels::Buffer converted;
  if (policy_.dtype && stored->dtype != *policy_.dtype) {
    auto copy = convert(original, *policy_.dtype);
    if (!copy) return fail(std::move(copy.error()));
    converted = std::move(*copy);
    stored->dtype = *policy_.dtype;
    stored->data = converted.data();
  }
  auto memory = derive(weight, *stored);
  if (!memory) return fail(std::move(memory.error()));
  stored_.copied(original);
  const kernels::WeightMatrix matrix{memory->data(), stored->dtype, weight.rows, weight.columns};
  if (const auto format = policy_.format_of(module)) return quantize(module, matrix, *format);
  return LinearWeight{.plain = matrix, .memory = std::make_shared<const kernels::Buffer>(std::move(*memory))};
}

Result<LinearWeight> LoadedWeights::copy(std::string_view module, const kernels::WeightMatrix& matrix) const {
  const std::lock_guard lock(mutex_);
  auto found = copied_.find(module);
  if (found == copied_.end()) {
    auto memory =
        convert({std::string(module), matrix.dtype, {matrix.rows, matrix.columns}, matrix.data}, matrix.dtype);
    if (!memory) return fail(std::move(memory.error()));
    found = copied_.emplace(std::string(module), std::move(*memory)).first;
  }
  kernels::WeightMatrix copy = matrix;
  copy.data = found->second.data();
  return LinearWeight{.plain = copy};
}

Result<LinearWeight> LoadedWeights::quantize(std::string_view module, const kernels::WeightMatrix& matrix,
                                             const kernels::QuantizedFormat& format) const {
  const std::lock_guard lock(mutex_);
  if (const auto found = quantized_.find(module); found != quantized_.end())
    return LinearWeight{.plain = {}, .quantized = found->second};
  auto weights = std::make_shared<QuantizedWeights>();
  weights->matrix = {nullptr, nullptr, matrix.rows, matrix.columns, format};
  for (const auto& [buffer, bytes] : {std::pair{&weights->data, weights->matrix.data_bytes()},
                                      std::pair{&weights->scales, weights->matrix.scale_bytes()},
                                      std::pair{&weights->mins, weights->matrix.min_bytes()}}) {
    if (bytes == 0) continue;
    auto memory = device_->allocate(static_cast<std::size_t>(bytes), kernels::MemoryKind::device);
    if (!memory) return fail(std::move(memory.error()));
    *buffer = std::move(*memory);
  }
  weights->matrix.data = weights->data.as<std::uint8_t>();
  weights->matrix.scales = weights->scales.as<Float16>();
  weights->matrix.mins = weights->mins.as<Float16>();
  auto status = run([&](kernels::Stream& stream) {
    return device_->ops().quantize_weights(stream, {.from = matrix,
                                                    .format = format,
                                                    .data = weights->data.as<std::uint8_t>(),
                                                    .scales = weights->scales.as<Float16>(),
                                                    .mins = weights->mins.as<Float16>()});
  });
  if (!status) {
    status.error().message = "module " + std::string(module) + ": " + status.error().message;
    return fail(std::move(status.error()));
  }
  quantized_.emplace(std::string(module), weights);
  return LinearWeight{.plain = {}, .quantized = std::move(weights)};
}

Result<kernels::Buffer> LoadedWeights::convert(const WeightTensor& tensor, DType dtype) const {
  if (!fits(tensor, dtype)) {
    return fail(ErrorCode::bad_config,
                "dtype float16: tensor \"" + tensor.name + "\" has values above 65504, the largest float16", "dtype");
  }
  const auto bytes = static_cast<std::size_t>(tensor.elements()) * size_of(dtype);
  auto copy = device_->allocate(bytes, kernels::MemoryKind::device);
  if (!copy) return fail(std::move(copy.error()));
  auto status = run([&](kernels::Stream& stream) {
    return device_->ops().convert(stream, {.from = tensor.data,
                                           .from_dtype = tensor.dtype,
                                           .to = copy->data(),
                                           .to_dtype = dtype,
                                           .count = tensor.elements()});
  });
  if (!status) return fail(std::move(status.error()));
  return copy;
}

Status LoadedWeights::run(const std::function<Status(kernels::Stream&)>& issue) const {
  auto stream = device_->create_stream("load");
  if (!stream) return fail(std::move(stream.error()));
  Status status;
  (*stream)->submit([&] { status = issue(**stream); });
  (*stream)->synchronize();
  return status;
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
  quantized_.clear();
}

}  // namespace pagoda::weights

#include "engine/weights/loaded_weights.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <span>
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

std::int64_t embedding_width(const models::ModelConfig& config) {
  return config.embedding_size == 0 ? config.hidden_size : config.embedding_size;
}

/// A kind of linear layer, of which a model has some.
struct LinearShape {
  std::int64_t rows = 0;
  std::int64_t columns = 0;
  std::int64_t count = 0;
};

std::vector<LinearShape> linear_shapes(const models::ModelConfig& config) {
  const std::int64_t hidden = config.hidden_size;
  const std::int64_t layers = config.num_layers;
  const std::int64_t query_width = config.num_heads * config.head_dim;
  std::vector<LinearShape> shapes = {{query_width, hidden, layers},
                                     {config.num_kv_heads * config.head_dim, hidden, 2 * layers},
                                     {hidden, query_width, layers},
                                     {config.intermediate_size, hidden, config.gated_mlp ? 2 * layers : layers},
                                     {hidden, config.intermediate_size, layers}};
  const std::int64_t embedding = embedding_width(config);
  if (embedding != hidden) {
    shapes.push_back({hidden, embedding, 1});
    shapes.push_back({embedding, hidden, 1});
  }
  return shapes;
}

std::int64_t quantized_bytes(std::int64_t rows, std::int64_t columns, const kernels::QuantizedFormat& format) {
  return kernels::QuantizedMatrix{nullptr, nullptr, rows, columns, format}.bytes();
}

/// What becomes of a checkpoint's elements.
struct WeightShares {
  std::int64_t quantized_bytes = 0;
  std::int64_t plain_parameters = 0;  ///< that are not quantised
};

WeightShares weight_shares(const models::ModelConfig& config, const WeightPolicy& policy, std::int64_t num_parameters) {
  WeightShares shares{0, num_parameters};
  if (!policy.quantize) return shares;
  for (const auto& [rows, columns, count] : linear_shapes(config)) {
    shares.plain_parameters -= rows * columns * count;
    shares.quantized_bytes += quantized_bytes(rows, columns, *policy.format_of({})) * count;
  }
  const std::int64_t width = embedding_width(config);
  if (!config.tie_word_embeddings) shares.plain_parameters -= config.vocab_size * width;
  shares.quantized_bytes += quantized_bytes(config.vocab_size, width, *policy.format_of(kHead));
  shares.plain_parameters = std::max<std::int64_t>(0, shares.plain_parameters);
  return shares;
}

/// Of so many elements that are not quantised, in a checkpoint of num_parameters.
std::int64_t plain_bytes(const WeightPolicy& policy, std::int64_t parameters, std::int64_t num_parameters,
                         std::int64_t checkpoint_bytes) {
  if (policy.dtype) return parameters * static_cast<std::int64_t>(size_of(*policy.dtype));
  if (num_parameters == 0) return 0;
  const double bytes_per_parameter = static_cast<double>(checkpoint_bytes) / static_cast<double>(num_parameters);
  return static_cast<std::int64_t>(bytes_per_parameter * static_cast<double>(parameters));
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

std::int64_t loaded_weight_bytes(const models::ModelConfig& config, const WeightPolicy& policy,
                                 std::int64_t num_parameters, std::int64_t checkpoint_bytes) {
  const WeightShares shares = weight_shares(config, policy, num_parameters);
  return shares.quantized_bytes + plain_bytes(policy, shares.plain_parameters, num_parameters, checkpoint_bytes);
}

std::int64_t copied_weight_bytes(const models::ModelConfig& config, const WeightPolicy& policy,
                                 std::int64_t num_parameters, std::int64_t checkpoint_bytes) {
  const WeightShares shares = weight_shares(config, policy, num_parameters);
  const bool converts = policy.dtype && *policy.dtype != config.checkpoint_dtype;
  std::int64_t parameters = 0;
  if (converts) {
    parameters = shares.plain_parameters;
  } else if (policy.copy_linear && !policy.quantize) {
    // An embedding is no linear layer, unless it is the head as well.
    parameters =
        shares.plain_parameters - (config.tie_word_embeddings ? 0 : config.vocab_size * embedding_width(config));
  }
  return shares.quantized_bytes +
         plain_bytes(policy, std::max<std::int64_t>(0, parameters), num_parameters, checkpoint_bytes);
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

Result<LinearWeight> LoadedWeights::linear(std::string_view module, const OwnWeight& own) const {
  const auto format = policy_.format_of(module);
  if (format) return quantize(module, own.matrix, *format);
  // A weight that the model has made lies in memory already.
  return policy_.copy_linear && own.memory == nullptr ? copy(module, own.matrix) : WeightSource::linear(module, own);
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
  return LinearWeight{copy, nullptr};
}

Result<LinearWeight> LoadedWeights::quantize(std::string_view module, const kernels::WeightMatrix& matrix,
                                             const kernels::QuantizedFormat& format) const {
  const std::lock_guard lock(mutex_);
  if (const auto found = quantized_.find(module); found != quantized_.end()) return LinearWeight{{}, found->second};
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
  return LinearWeight{{}, std::move(weights)};
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
  const std::lock_guard lock(mutex_);
  std::int64_t bytes = 0;
  for (const auto& [name, buffer] : converted_) bytes += static_cast<std::int64_t>(buffer.bytes());
  for (const auto& [module, buffer] : copied_) bytes += static_cast<std::int64_t>(buffer.bytes());
  for (const auto& [module, weights] : quantized_) bytes += weights->matrix.bytes();
  return bytes;
}

void LoadedWeights::drop_copies() const {
  const std::lock_guard lock(mutex_);
  converted_.clear();
  copied_.clear();
  quantized_.clear();
}

}  // namespace pagoda::weights

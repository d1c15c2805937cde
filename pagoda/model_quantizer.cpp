#include "pagoda/model_quantizer.hpp"

#include <algorithm>
#include <utility>

#include "engine/calibration/rotated.hpp"
#include "engine/calibration/rounded.hpp"
#include "kernels/rotation.hpp"

namespace pagoda {
namespace {

using calibration::ErrorFeedback;
using calibration::SharedInput;

void no_logits(std::int32_t, std::span<const float>) {}

std::string weight_of(const layers::LinearModule& module) {
  return module.name + ".weight";
}

Status in_module(const layers::LinearModule& module, Error error) {
  error.message = "module " + module.name + ": " + error.message;
  return fail(std::move(error));
}

/// Transposes: to [rows, columns], from [columns, rows].
void transpose_floats(const float* from, std::int64_t rows, std::int64_t columns, float* to) {
  for (std::int64_t row = 0; row < rows; ++row) {
    for (std::int64_t column = 0; column < columns; ++column) to[row * columns + column] = from[column * rows + row];
  }
}

}  // namespace

Status ModelQuantizer::look() {
  Status status = model_.run({0}, 1, no_logits, &products_);
  return status ? choose_modules() : status;
}

std::vector<io::WrittenModule> ModelQuantizer::modules() const {
  std::vector<io::WrittenModule> written;
  for (const FoundModule& module : modules_) written.push_back(module.written);
  return written;
}

Status ModelQuantizer::choose_bits(const std::vector<TokenIds>& texts) {
  PAGODA_ASSERT(format_.wider, "there is something to choose");
  auto stream = device_->create_stream("pagoda-quantize");
  if (!stream) return fail(std::move(stream.error()));
  RoundingTrials trials(model_, texts);
  if (Status status = trials.remember(); !status) return status;
  const std::vector<LayerGroup> groups = layer_groups();
  std::vector<LayerTrial> tried;
  for (const LayerGroup& group : groups) {
    report("trying layers", tried.size(), groups.size());
    const auto divergence = try_rounded(**stream, group, trials);
    if (!divergence) return in_module(modules_[group.front()].layer, divergence.error());
    LayerTrial& trial = tried.emplace_back(LayerTrial{.divergence = *divergence});
    for (const std::size_t i : group) trial.num_weights += modules_[i].written.rows * modules_[i].written.columns;
  }
  const WiderFormat& wider = *format_.wider;
  const auto chosen =
      choose_more_bits(tried, format_.gptq.bits_per_weight(), wider.gptq.bits_per_weight(), wider.bits_per_weight);
  for (std::size_t g = 0; g < groups.size(); ++g) {
    for (const std::size_t i : groups[g]) {
      modules_[i].written.bits = chosen[g] ? wider.gptq.bits : format_.gptq.bits;
    }
  }
  return {};
}

std::vector<ModelQuantizer::LayerGroup> ModelQuantizer::layer_groups() const {
  std::vector<LayerGroup> groups;
  for (std::size_t i = 0; i < modules_.size(); ++i) {
    const bool joins = format_.wider->inputs_are_alike && i > 0 && modules_[i].input == modules_[i - 1].input;
    if (!joins) groups.emplace_back();
    groups.back().push_back(i);
  }
  return groups;
}

Result<double> ModelQuantizer::try_rounded(kernels::Stream& stream, const LayerGroup& group,
                                           RoundingTrials& trials) const {
  LinearWeights linears;
  for (const std::size_t i : group) {
    const FoundModule& module = modules_[i];
    Result<weights::LinearWeight> weight;
    stream.submit([&] { weight = rounded(stream, module); });
    stream.synchronize();
    if (const Status status = stream.status(); !status) return fail(status.error());
    if (!weight) return fail(std::move(weight.error()));
    linears.emplace(module.written.name, std::move(*weight));
  }
  return trials.divergence_with(std::move(linears));
}

/// Returns the rounded weights in the model's own type, so that their products are computed as those of its own
/// weights.
Result<weights::LinearWeight> ModelQuantizer::rounded(kernels::Stream& stream, const FoundModule& module) const {
  const std::int64_t rows = module.written.rows;
  const std::int64_t columns = module.written.columns;
  DType dtype = DType::f32;
  auto weights = read_weights(stream, module.layer, columns, &dtype);
  if (!weights) return fail(std::move(weights.error()));
  Status status =
      calibration::round_weights(*device_, stream, weights->as<float>(), rows, columns, format_.gptq, format_.rotate);
  if (!status) return fail(std::move(status.error()));
  auto memory = device_->allocate(static_cast<std::size_t>(rows * columns) * size_of(dtype), kernels::MemoryKind::host);
  if (!memory) return fail(std::move(memory.error()));
  status = device_->ops().convert(stream, {.from = weights->data(),
                                           .from_dtype = DType::f32,
                                           .to = memory->data(),
                                           .to_dtype = dtype,
                                           .count = rows * columns});
  if (!status) return fail(std::move(status.error()));
  const auto kept = std::make_shared<const kernels::Buffer>(std::move(*memory));
  return weights::LinearWeight{.plain = {kept->data(), dtype, rows, columns}, .memory = kept};
}

const calibration::GptqFormat& ModelQuantizer::format_of(int bits) const {
  return bits == format_.gptq.bits ? format_.gptq : format_.wider->gptq;
}

double ModelQuantizer::bits_per_weight() const {
  double bits = 0;
  double weights = 0;
  for (const FoundModule& module : modules_) {
    const auto count = static_cast<double>(module.written.rows * module.written.columns);
    bits += count * format_of(module.written.bits).bits_per_weight();
    weights += count;
  }
  return bits / weights;
}

Status ModelQuantizer::run(const std::vector<TokenIds>& texts, io::QuantizedModelWriter& writer) {
  auto stream = device_->create_stream("pagoda-quantize");
  if (!stream) return fail(std::move(stream.error()));
  Status status;
  for (std::size_t begin = 0; begin < products_.inputs().size() && status;) {
    const std::size_t end = as_many_as_fit(begin);
    status = collect(begin, end, texts);
    for (std::size_t input = begin; input < end && status; ++input) {
      (*stream)->submit([&] { status = quantize(**stream, input, writer); });
      (*stream)->synchronize();
      if (status) status = (*stream)->status();
    }
    begin = end;
  }
  if (progress_) progress_("quantising", 1);
  return status ? writer.finish() : status;
}

bool ModelQuantizer::takes(const layers::LinearModule& module) const {
  return weights_.contains(weight_of(module));
}

Status ModelQuantizer::choose_modules() {
  const auto& inputs = products_.inputs();
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    for (const layers::LinearModule& module : inputs[i].modules) {
      if (!takes(module)) continue;
      if (Status status = check_columns(module, inputs[i].in_features); !status) return status;
      modules_.push_back({{module.name, module.out_features, inputs[i].in_features, format_.gptq.bits}, module, i});
    }
  }
  if (!modules_.empty()) return {};
  return fail(ErrorCode::unsupported, "no linear layer of the model is a plain matrix of its checkpoint", "model");
}

Status ModelQuantizer::check_columns(const layers::LinearModule& module, std::int64_t columns) const {
  const std::int64_t group_size = format_.gptq.group_size;
  if (columns % group_size != 0) {
    return fail(ErrorCode::bad_config,
                "groups of " + std::to_string(group_size) + " do not divide the " + std::to_string(columns) +
                    " columns of " + module.name,
                "group_size");
  }
  if (format_.rotate && columns % kernels::kRotationBlock != 0) {
    return fail(ErrorCode::bad_config,
                "the " + std::to_string(columns) + " columns of " + module.name + " are not whole blocks of " +
                    std::to_string(kernels::kRotationBlock) + ", so they cannot be rotated",
                "rotate");
  }
  return {};
}

/// Returns the end of the inputs from `begin` on whose products fit in half of the free memory. Takes at least one.
std::size_t ModelQuantizer::as_many_as_fit(std::size_t begin) const {
  const std::int64_t most = device_->available_bytes(kernels::MemoryKind::host) / 2;
  std::int64_t bytes = 0;
  std::size_t end = begin;
  for (; end < products_.inputs().size(); ++end) {
    bytes += products_.inputs()[end].product_bytes();
    if (end > begin && bytes > most) break;
  }
  return end;
}

Status ModelQuantizer::collect(std::size_t begin, std::size_t end, const std::vector<TokenIds>& texts) {
  Status status = products_.collect(begin, end);
  for (std::size_t i = 0; i < texts.size() && status; ++i) {
    report("calibrating", i, texts.size());
    status = model_.run(texts[i], static_cast<std::int32_t>(texts[i].size()), no_logits, &products_);
  }
  return status;
}

Status ModelQuantizer::quantize(kernels::Stream& stream, std::size_t input, io::QuantizedModelWriter& writer) {
  const SharedInput& shared = products_.inputs()[input];
  kernels::Buffer products = products_.take(input);
  if (std::ranges::none_of(shared.modules, [&](const auto& module) { return takes(module); })) return {};
  if (format_.rotate) {
    Status status = calibration::rotate_products(*device_, stream, products.as<float>(), shared.in_features);
    if (!status) return status;
  }
  const auto feedback = ErrorFeedback::factorize(*device_, stream, std::move(products), shared.in_features);
  if (!feedback) return in_module(shared.modules.front(), feedback.error());
  for (const layers::LinearModule& module : shared.modules) {
    if (!takes(module)) continue;
    report("quantising", num_done_, modules_.size());
    const int bits = modules_[num_done_].written.bits;
    Status status = quantize(stream, module, bits, *feedback, writer);
    if (!status) return in_module(module, status.error());
    ++num_done_;
  }
  return {};
}

Status ModelQuantizer::quantize(kernels::Stream& stream, const layers::LinearModule& module, int bits,
                                const ErrorFeedback& feedback, io::QuantizedModelWriter& writer) {
  const std::int64_t rows = module.out_features;
  const std::int64_t columns = feedback.size();
  auto weights = read_weights(stream, module, columns);
  if (!weights) return fail(std::move(weights.error()));
  if (format_.rotate) {
    Status status = calibration::rotate_columns(*device_, stream, weights->as<float>(), rows, columns);
    if (!status) return status;
  }
  const auto matrix =
      calibration::quantize_gptq(*device_, stream, weights->as<float>(), rows, feedback, format_of(bits));
  if (!matrix) return fail(matrix.error());
  return writer.write({module.name, rows, columns, bits},
                      {.q = matrix->q, .scales = matrix->scales, .zeros = matrix->zeros, .mins = matrix->mins});
}

/// Returns [out_features, columns] as float32. `stored`: set to the type in the checkpoint.
Result<kernels::Buffer> ModelQuantizer::read_weights(kernels::Stream& stream, const layers::LinearModule& module,
                                                     std::int64_t columns, DType* stored) const {
  const std::int64_t rows = module.out_features;
  const bool transposed = module.transposed && !weights_.holds_derived(module.name);
  const auto tensor =
      weights_.tensor(weight_of(module), transposed ? std::vector{columns, rows} : std::vector{rows, columns});
  if (!tensor) return fail(tensor.error());
  if (stored != nullptr) *stored = tensor->dtype;
  const auto bytes = static_cast<std::size_t>(rows * columns) * sizeof(float);
  auto weights = device_->allocate(bytes, kernels::MemoryKind::host);
  if (!weights) return weights;
  if (tensor->quantized != nullptr) {  // the rows are not contiguous
    for (std::int64_t row = 0; row < rows; ++row) {
      tensor->quantized->dequantize(row, weights->as<float>() + row * columns);
    }
    return weights;
  }
  Status status = device_->ops().convert(stream, {.from = tensor->data,
                                                  .from_dtype = tensor->dtype,
                                                  .to = weights->data(),
                                                  .to_dtype = DType::f32,
                                                  .count = rows * columns});
  if (!status) return fail(std::move(status.error()));
  if (!transposed) return weights;
  auto in_order = device_->allocate(bytes, kernels::MemoryKind::host);
  if (in_order) transpose_floats(weights->as<float>(), rows, columns, in_order->as<float>());
  return in_order;
}

void ModelQuantizer::report(std::string_view what, std::size_t done, std::size_t of) const {
  if (progress_) progress_(what, static_cast<double>(done) / static_cast<double>(of));
}

}  // namespace pagoda

#include "pagoda/model_quantizer.hpp"

#include <algorithm>
#include <utility>

#include "engine/calibration/rotated.hpp"
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

/// to [rows, columns] = from [columns, rows] transposed.
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
  for (const SharedInput& input : products_.inputs()) {
    for (const layers::LinearModule& module : input.modules) {
      if (!takes(module)) continue;
      if (Status status = check_columns(module, input.in_features); !status) return status;
      modules_.push_back({module.name, module.out_features, input.in_features});
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

/// The end of the inputs from `begin` on, one at least, whose products fit in half of the memory that is free.
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
    if (Status status = quantize(stream, module, *feedback, writer); !status) return in_module(module, status.error());
    ++num_done_;
  }
  return {};
}

Status ModelQuantizer::quantize(kernels::Stream& stream, const layers::LinearModule& module,
                                const ErrorFeedback& feedback, io::QuantizedModelWriter& writer) {
  const std::int64_t rows = module.out_features;
  const std::int64_t columns = feedback.size();
  auto weights = read_weights(stream, module, columns);
  if (!weights) return fail(std::move(weights.error()));
  if (format_.rotate) {
    Status status = calibration::rotate_columns(*device_, stream, weights->as<float>(), rows, columns);
    if (!status) return status;
  }
  const auto matrix = calibration::quantize_gptq(*device_, stream, weights->as<float>(), rows, feedback, format_.gptq);
  if (!matrix) return fail(matrix.error());
  return writer.write({module.name, rows, columns},
                      {.q = matrix->q, .scales = matrix->scales, .zeros = matrix->zeros, .mins = matrix->mins});
}

/// [out_features, columns] as float32.
Result<kernels::Buffer> ModelQuantizer::read_weights(kernels::Stream& stream, const layers::LinearModule& module,
                                                     std::int64_t columns) const {
  const std::int64_t rows = module.out_features;
  const bool transposed = module.transposed && !weights_.holds_derived(module.name);
  const auto tensor =
      weights_.tensor(weight_of(module), transposed ? std::vector{columns, rows} : std::vector{rows, columns});
  if (!tensor) return fail(tensor.error());
  const auto bytes = static_cast<std::size_t>(rows * columns) * sizeof(float);
  auto weights = device_->allocate(bytes, kernels::MemoryKind::host);
  if (!weights) return weights;
  if (tensor->quantized != nullptr) {  // rows that do not lie in order
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

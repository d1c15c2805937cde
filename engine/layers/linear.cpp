#include "engine/layers/linear.hpp"

#include <optional>
#include <string>
#include <utility>

namespace pagoda::layers {

Linear::Linear(const WeightLoader& loader, std::span<const Projection> projections, std::int64_t in_features, bool bias)
    : in_features_(in_features) {
  std::optional<DType> bias_dtype;
  for (const auto& [name, out_features] : projections) {
    const auto module = loader / name;
    auto weight = module.linear(out_features, in_features);
    WeightVector vector;
    if (bias) vector = module.vector("bias", out_features);
    if (bias && bias_dtype.value_or(vector.dtype) != vector.dtype) {
      module.reject("its bias and the biases of the projections beside it must have one dtype");
    }
    if (bias) bias_dtype = vector.dtype;
    add(std::move(weight), bias ? &vector : nullptr);
    modules_.push_back({.name = std::string(module.name()), .out_features = out_features});
    out_features_ += out_features;
  }
}

Linear Linear::tied(const WeightLoader& module, const WeightLoader& other, std::int64_t out_features,
                    std::int64_t in_features) {
  Linear linear;
  linear.in_features_ = in_features;
  linear.add(module.tied_linear(other.full_name("weight"), out_features, in_features), nullptr);
  linear.out_features_ = out_features;
  return linear;
}

Linear Linear::derived(const WeightLoader& module, const weights::DerivedWeight& weight, bool bias) {
  Linear linear;
  linear.in_features_ = weight.columns;
  auto derived = module.derived_linear(weight);
  WeightVector vector;
  if (bias) vector = module.vector("bias", weight.rows);
  linear.add(std::move(derived), bias ? &vector : nullptr);
  linear.out_features_ = weight.rows;
  if (weight.is_transposed) {
    linear.modules_.push_back({.name = std::string(module.name()), .out_features = weight.rows, .transposed = true});
  }
  return linear;
}

bool Linear::Part::takes(const weights::LinearWeight& weight) const {
  if (weight.quantized == nullptr) {
    const auto has_scales_of = [](const kernels::WeightMatrix& matrix) {
      return matrix.scales == nullptr ? 0 : matrix.scale_columns;
    };
    return quantized.empty() && has_scales_of(plain.front()) == has_scales_of(weight.plain);
  }
  const kernels::QuantizedMatrix& matrix = weight.quantized->matrix;
  return plain.empty() && quantized.front().format == matrix.format && quantized.front().order == matrix.order;
}

void Linear::add(weights::LinearWeight weight, const WeightVector* bias) {
  const bool is_plain = weight.quantized == nullptr && weight.plain.scales == nullptr;
  const DType type = is_plain ? weight.plain.dtype : DType::f32;
  narrow_type_ = parts_.empty() || type == narrow_type_ ? type : DType::f32;
  if (parts_.empty() || !parts_.back().takes(weight)) {
    parts_.emplace_back();
    parts_.back().first_feature = out_features_;
  }
  Part& part = parts_.back();
  if (bias != nullptr) {
    part.biases.push_back(bias->data);
    part.bias_dtype = bias->dtype;
  }
  if (weight.quantized != nullptr) {
    part.quantized.push_back(weight.quantized->matrix);
    memory_.push_back(std::move(weight.quantized));
  } else {
    part.plain.push_back(weight.plain);
    if (weight.memory != nullptr) memory_.push_back(std::move(weight.memory));
  }
}

void Linear::operator()(ForwardPass& pass, const Rows& x, std::int64_t num_rows, float* y,
                        Accumulate accumulate) const {
  pass.show_input(modules_, x, num_rows, in_features_);
  for (const Part& part : parts_) {
    if (!part.quantized.empty()) {
      pass.run(&kernels::Ops::quantized_linear, {.x = x.floats,
                                                 .num_tokens = num_rows,
                                                 .in = in_features_,
                                                 .weights = part.quantized,
                                                 .biases = part.biases,
                                                 .bias_dtype = part.bias_dtype,
                                                 .out = y + part.first_feature,
                                                 .out_stride = out_features_,
                                                 .accumulate = accumulate == Accumulate::yes});
    } else {
      pass.run(&kernels::Ops::linear, {.x = x.floats,
                                       .narrow_x = x.narrow,
                                       .num_tokens = num_rows,
                                       .in = in_features_,
                                       .weights = part.plain,
                                       .biases = part.biases,
                                       .bias_dtype = part.bias_dtype,
                                       .out = y + part.first_feature,
                                       .out_stride = out_features_,
                                       .accumulate = accumulate == Accumulate::yes});
    }
  }
}

}  // namespace pagoda::layers

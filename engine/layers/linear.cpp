#include "engine/layers/linear.hpp"

#include <string>
#include <utility>

namespace pagoda::layers {

Linear::Linear(const WeightLoader& loader, std::span<const Projection> projections, std::int64_t in_features, bool bias)
    : in_features_(in_features) {
  for (const auto& [name, out_features] : projections) {
    const auto module = loader / name;
    add(module.linear(out_features, in_features));
    out_features_ += out_features;
    if (!bias) continue;
    const auto vector = module.vector("bias", out_features);
    if (biases_.empty()) bias_dtype_ = vector.dtype;
    if (vector.dtype != bias_dtype_) module.reject("its bias has another dtype than the projections beside it");
    biases_.push_back(vector.data);
  }
}

Linear Linear::tied(const WeightLoader& module, const WeightLoader& other, std::int64_t out_features,
                    std::int64_t in_features) {
  Linear linear;
  linear.in_features_ = in_features;
  linear.out_features_ = out_features;
  linear.add(module.tied_linear(other.full_name("weight"), out_features, in_features));
  return linear;
}

Linear Linear::derived(const WeightLoader& module, const weights::DerivedWeight& weight, bool bias) {
  Linear linear;
  linear.in_features_ = weight.columns;
  linear.out_features_ = weight.rows;
  linear.add(module.derived_linear(weight));
  if (!bias) return linear;
  const auto vector = module.vector("bias", weight.rows);
  linear.bias_dtype_ = vector.dtype;
  linear.biases_.push_back(vector.data);
  return linear;
}

void Linear::add(weights::LinearWeight weight) {
  if (weight.quantized != nullptr) {
    quantized_.push_back(weight.quantized->matrix);
    memory_.push_back(std::move(weight.quantized));
  } else {
    narrow_type_ = weights_.empty() || weight.plain.dtype == narrow_type_ ? weight.plain.dtype : DType::f32;
    weights_.push_back(weight.plain);
    if (weight.memory != nullptr) memory_.push_back(std::move(weight.memory));
  }
}

void Linear::operator()(ForwardPass& pass, const Rows& x, std::int64_t num_rows, float* y, Into into) const {
  if (!quantized_.empty()) {
    return pass.run(&kernels::Ops::quantized_linear, {.x = x.floats,
                                                      .num_tokens = num_rows,
                                                      .in = in_features_,
                                                      .weights = quantized_,
                                                      .biases = biases_,
                                                      .bias_dtype = bias_dtype_,
                                                      .out = y,
                                                      .out_stride = out_features_,
                                                      .accumulate = into == Into::add});
  }
  pass.run(&kernels::Ops::linear, {.x = x.floats,
                                   .narrow_x = x.narrow,
                                   .num_tokens = num_rows,
                                   .in = in_features_,
                                   .weights = weights_,
                                   .biases = biases_,
                                   .bias_dtype = bias_dtype_,
                                   .out = y,
                                   .out_stride = out_features_,
                                   .accumulate = into == Into::add});
}

}  // namespace pagoda::layers

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

Linear::Linear(const WeightLoader& module, const weights::OwnWeight& weight, const WeightVector& bias)
    : bias_dtype_(bias.dtype), in_features_(weight.matrix.columns), out_features_(weight.matrix.rows) {
  add(module.linear(weight));
  if (bias.data != nullptr) biases_.push_back(bias.data);
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

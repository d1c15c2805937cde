#include "engine/layers/norm.hpp"

namespace pagoda::layers {

RmsNorm::RmsNorm(const WeightLoader& loader, std::int64_t width, double eps, float weight_offset)
    : weight_(loader.vector("weight", width)),
      width_(width),
      eps_(static_cast<float>(eps)),
      weight_offset_(weight_offset) {}

void RmsNorm::add_and_norm(ForwardPass& pass, const float* x, float* residual, std::int64_t num_rows,
                           const Rows& y) const {
  pass.run(&kernels::Ops::rms_norm, {.x = x,
                                     .residual = residual,
                                     .weight = weight_.data,
                                     .weight_dtype = weight_.dtype,
                                     .weight_offset = weight_offset_,
                                     .eps = eps_,
                                     .out = y.floats,
                                     .narrow_out = y.narrow,
                                     .num_tokens = num_rows,
                                     .hidden = width_});
}

LayerNorm::LayerNorm(const WeightLoader& loader, std::int64_t width, double eps, LayerNormTensors tensors)
    : width_(width), eps_(static_cast<float>(eps)) {
  if (tensors != LayerNormTensors::none) weight_ = loader.vector("weight", width);
  if (tensors == LayerNormTensors::weight_and_bias) bias_ = loader.vector("bias", width);
}

void LayerNorm::operator()(ForwardPass& pass, const float* x, std::int64_t num_rows, const Rows& y) const {
  add_and_norm(pass, x, nullptr, num_rows, y);
}

void LayerNorm::add_and_norm(ForwardPass& pass, const float* x, float* residual, std::int64_t num_rows,
                             const Rows& y) const {
  pass.run(&kernels::Ops::layer_norm, {.x = x,
                                       .residual = residual,
                                       .weight = weight_.data,
                                       .bias = bias_.data,
                                       .weight_dtype = weight_.dtype,
                                       .bias_dtype = bias_.dtype,
                                       .eps = eps_,
                                       .out = y.floats,
                                       .narrow_out = y.narrow,
                                       .num_tokens = num_rows,
                                       .hidden = width_});
}

}  // namespace pagoda::layers

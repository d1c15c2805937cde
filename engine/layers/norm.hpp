#pragma once

#include <cstdint>

#include "engine/layers/forward_pass.hpp"
#include "engine/layers/rows.hpp"
#include "engine/layers/weight_loader.hpp"

namespace pagoda::layers {

/// y = x / sqrt(mean(x^2) + eps) * weight.
class RmsNorm {
 public:
  RmsNorm() = default;
  /// Takes `weight` [width] of the loader's module.
  RmsNorm(const WeightLoader& loader, std::int64_t width, double eps);

  /// x, y: [num_rows, width]; y may be the memory of x if y is float32.
  void operator()(ForwardPass& pass, const float* x, std::int64_t num_rows, const Rows& y) const;

 private:
  WeightVector weight_;
  std::int64_t width_ = 0;
  float eps_ = 0.0F;
};

/// y = (x - mean(x)) / sqrt(variance(x) + eps) * weight + bias.
class LayerNorm {
 public:
  LayerNorm() = default;
  /// Takes `weight` and `bias` [width] of the loader's module if `affine`, otherwise no tensors.
  LayerNorm(const WeightLoader& loader, std::int64_t width, double eps, bool affine = true);

  /// x, y: [num_rows, width]; y may be the memory of x if y is float32.
  void operator()(ForwardPass& pass, const float* x, std::int64_t num_rows, const Rows& y) const;

  /// residual += x, then y = norm(residual). All are [num_rows, width]; y may be the memory of x or residual if y is
  /// float32.
  void add_and_norm(ForwardPass& pass, const float* x, float* residual, std::int64_t num_rows, const Rows& y) const;

 private:
  WeightVector weight_;
  WeightVector bias_;
  std::int64_t width_ = 0;
  float eps_ = 0.0F;
};

}  // namespace pagoda::layers

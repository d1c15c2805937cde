#pragma once

#include <cstdint>

#include "engine/layers/forward_pass.hpp"
#include "engine/layers/rows.hpp"
#include "engine/layers/weight_loader.hpp"

namespace pagoda::layers {

/// y = x / sqrt(mean(x^2) + eps) * (weight_offset + weight).
class RmsNorm {
 public:
  RmsNorm() = default;
  /// Takes `weight` [width] of the loader's module.
  RmsNorm(const WeightLoader& loader, std::int64_t width, double eps, float weight_offset = 0.0F);

  /// x, y: [num_rows, width]; y may be the memory of x if y is float32.
  void operator()(ForwardPass& pass, const float* x, std::int64_t num_rows, const Rows& y) const {
    add_and_norm(pass, x, nullptr, num_rows, y);
  }
  /// residual += x, then y = norm(residual). All are [num_rows, width]; y may be the memory of x if y is float32.
  void add_and_norm(ForwardPass& pass, const float* x, float* residual, std::int64_t num_rows, const Rows& y) const;

 private:
  WeightVector weight_;
  std::int64_t width_ = 0;
  float eps_ = 0.0F;
  float weight_offset_ = 0.0F;
};

/// The tensors of a LayerNorm: an absent weight is 1, an absent bias 0.
enum class LayerNormTensors : std::uint8_t { none, weight, weight_and_bias };

/// y = (x - mean(x)) / sqrt(variance(x) + eps) * weight + bias.
class LayerNorm {
 public:
  LayerNorm() = default;
  /// Takes the `tensors` [width] of the loader's module.
  LayerNorm(const WeightLoader& loader, std::int64_t width, double eps,
            LayerNormTensors tensors = LayerNormTensors::weight_and_bias);

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

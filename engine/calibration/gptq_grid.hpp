#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <span>

#include "kernels/dtype.hpp"

namespace pagoda::calibration {

/// Weights as integers. A weight is scales[n, k / group_size] * (q[n, k] - zeros[n, k / group_size]), or with minimums
/// scales[n, k / group_size] * q[n, k] + mins[n, k / group_size].
struct GptqFormat {
  int bits = 4;                  ///< 4 or 8
  std::int64_t group_size = 32;  ///< divides the columns
  /// Whether a group has a zero point or a minimum of its own; otherwise all zeros are 2^(bits - 1).
  bool asymmetric = false;
  DType scale_dtype = DType::f16;  ///< type to which scales and minimums are rounded: f16 or bf16
  bool minimums = false;           ///< whether an asymmetric group has a minimum in place of a zero point

  /// Returns the bits of a weight with its part of the scale and of the zero point or minimum.
  double bits_per_weight() const {
    const int of_group = 16 + (minimums ? 16 : asymmetric ? bits : 0);
    return bits + static_cast<double>(of_group) / static_cast<double>(group_size);
  }
};

/// The integers of one group. The integer q stands for min + scale * (q - zero).
struct GptqGrid {
  float scale = 0;  ///< as it is stored; 0 if all weights are the minimum
  float zero = 0;   ///< 0 if there is a minimum
  float highest = 0;
  float min = 0;  ///< as it is stored

  /// Returns the integer that is nearest to w, minus the zero.
  float steps(float w) const {
    return scale == 0 ? 0 : std::clamp(std::nearbyint((w - min) / scale), -zero, highest - zero);
  }
  float value(float steps) const { return min + scale * steps; }
};

/// Returns the grid with the least squared error among grids whose ends lie at the ends of a group's `weights` or
/// nearer. Column k counts with importance[k]. The result may be not finite if a weight is not.
GptqGrid best_grid(std::span<const float> weights, const float* importance, const GptqFormat& format);

}  // namespace pagoda::calibration

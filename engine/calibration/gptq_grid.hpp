#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <span>

#include "kernels/dtype.hpp"

namespace pagoda::calibration {

/// Weights as integers: scales[n, k / group_size] * (q[n, k] - zeros[n, k / group_size]), or with minimums
/// scales[n, k / group_size] * q[n, k] + mins[n, k / group_size].
struct GptqFormat {
  int bits = 4;                    ///< 4 or 8
  std::int64_t group_size = 32;    ///< divides the columns
  bool asymmetric = false;         ///< else all zeros are 2^(bits - 1)
  DType scale_dtype = DType::f16;  ///< or bf16: what scales and minimums are rounded to
  bool minimums = false;           ///< what an asymmetric group has in place of a zero point

  /// With scales and what else a group has.
  double bits_per_weight() const {
    const int of_group = 16 + (minimums ? 16 : asymmetric ? bits : 0);
    return bits + static_cast<double>(of_group) / static_cast<double>(group_size);
  }
};

/// The integers of one group and what they stand for: min + scale * (q - zero).
struct GptqGrid {
  float scale = 0;  ///< as it is stored; 0: all weights are the minimum
  float zero = 0;   ///< 0 where there is a minimum
  float highest = 0;
  float min = 0;  ///< as it is stored

  /// The integer that w is nearest to, less the zero.
  float steps(float w) const {
    return scale == 0 ? 0 : std::clamp(std::nearbyint((w - min) / scale), -zero, highest - zero);
  }
  float value(float steps) const { return min + scale * steps; }
};

/// Of grids whose ends lie at the ends of a group's `weights` or nearer, the one of least squared error, column k
/// counting importance[k]. Weights that are not finite may give one that is not.
GptqGrid best_grid(std::span<const float> weights, const float* importance, const GptqFormat& format);

}  // namespace pagoda::calibration

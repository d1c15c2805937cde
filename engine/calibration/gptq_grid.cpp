#include "engine/calibration/gptq_grid.hpp"

#include <array>
#include <cstddef>

namespace pagoda::calibration {
namespace {

float rounded(float scale, DType dtype) {
  return dtype == DType::bf16 ? to_float(to_bf16(scale)) : to_float(to_f16(scale));
}

class GridSearch {
 public:
  GridSearch(std::span<const float> weights, const float* importance, const GptqFormat& format)
      : weights_(weights),
        importance_(importance),
        format_(format),
        highest_(static_cast<float>((1 << format.bits) - 1)) {
    constexpr std::array kFactors{1.0F, 0.95F, 0.9F, 0.85F, 0.8F, 0.75F, 0.7F};
    const auto [min, max] = std::ranges::minmax(weights);
    for (const float factor : kFactors) {
      // The value of highest magnitude is at the end of the grid that is one step further from zero.
      try_symmetric((-min > max ? min : max) * factor);
      if (format.asymmetric && !format.minimums) try_zero_point(min * factor, max * factor);
      if (format.minimums) {
        const float cut = (1 - factor) / 2 * (max - min);
        try_minimum((max - min) * factor / highest_, min + cut);
      }
      if (format.bits == 8) break;  // cutting gains nothing with 8 bits
    }
    if (format.minimums) fit_minimum();
  }

  const GptqGrid& best() const { return best_; }

 private:
  float round(float number) const { return rounded(number, format_.scale_dtype); }

  void try_symmetric(float extreme) {
    const float middle = static_cast<float>(1 << (format_.bits - 1));
    const float scale = round(extreme / -middle);
    if (format_.minimums) {
      try_minimum(scale, -middle * scale);
    } else {
      try_grid({scale, middle, highest_});
    }
  }

  void try_zero_point(float min, float max) {
    const float lowest = std::min(min, 0.0F);
    const float scale = round((std::max(max, 0.0F) - lowest) / highest_);
    const float middle = static_cast<float>(1 << (format_.bits - 1));
    try_grid({scale, scale == 0 ? middle : std::clamp(std::nearbyint(-lowest / scale), 0.0F, highest_), highest_});
  }

  void try_minimum(float scale, float min) { try_grid({round(scale), 0, highest_, round(min)}); }

  /// Tries the line through the weights over the integers of the best grid: least squares.
  void fit_minimum() {
    double sum = 0;
    double sum_q = 0;
    double sum_w = 0;
    double sum_qq = 0;
    double sum_qw = 0;
    for (std::size_t k = 0; k < weights_.size(); ++k) {
      const double counts = importance_[k];
      const double q = best_.steps(weights_[k]);
      sum += counts;
      sum_q += counts * q;
      sum_w += counts * weights_[k];
      sum_qq += counts * q * q;
      sum_qw += counts * q * weights_[k];
    }
    const double spread = sum * sum_qq - sum_q * sum_q;
    if (!(spread > 0)) return;  // all weights have the same integer
    const double slope = (sum * sum_qw - sum_q * sum_w) / spread;
    try_minimum(static_cast<float>(slope), static_cast<float>((sum_w - slope * sum_q) / sum));
  }

  void try_grid(const GptqGrid& grid) {
    float error = 0;
    for (std::size_t k = 0; k < weights_.size(); ++k) {
      const float difference = weights_[k] - grid.value(grid.steps(weights_[k]));
      error += importance_[k] * difference * difference;
    }
    if (has_best_ && !(error < best_error_)) return;
    best_ = grid;
    best_error_ = error;
    has_best_ = true;
  }

  std::span<const float> weights_;
  const float* importance_;
  const GptqFormat& format_;
  float highest_;
  GptqGrid best_;
  float best_error_ = 0;
  bool has_best_ = false;
};

}  // namespace

GptqGrid best_grid(std::span<const float> weights, const float* importance, const GptqFormat& format) {
  return GridSearch(weights, importance, format).best();
}

}  // namespace pagoda::calibration

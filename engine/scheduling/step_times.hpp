#pragma once

#include <algorithm>
#include <cstdint>

#include "engine/types.hpp"

namespace pagoda::scheduling {

/// The cost of one more token in a step: the slope of a line through the durations of steps over their tokens, in which
/// older steps fade. The line's offset is the time that a step takes for any number of tokens, such as reading the
/// weights. While all steps have nearly one size, they determine no slope; then it is the slope of a line through the
/// origin.
class StepTimes {
 public:
  void step_measured(std::int64_t num_tokens, TimeUs duration_us) {
    if (num_tokens <= 0 || duration_us <= 0) return;
    const auto x = static_cast<double>(num_tokens);
    const auto y = static_cast<double>(duration_us);
    n_ = kFade * n_ + 1;
    x_ = kFade * x_ + x;
    y_ = kFade * y_ + y;
    xx_ = kFade * xx_ + x * x;
    xy_ = kFade * xy_ + x * y;
  }

  /// Returns 0 before the first measurement.
  double us_per_token() const {
    if (n_ == 0) return 0;
    const double mean_x = x_ / n_;
    const double mean_y = y_ / n_;
    const double variance = xx_ / n_ - mean_x * mean_x;
    const double covariance = xy_ / n_ - mean_x * mean_y;
    const double slope = (covariance + kOriginWeight * mean_x * mean_y) / (variance + kOriginWeight * mean_x * mean_x);
    return std::max(slope, kMinShare * mean_y / mean_x);
  }

  static constexpr auto visit_fields(auto& self, auto&& visit) {
    return visit(self.n_, self.x_, self.y_, self.xx_, self.xy_);
  }

 private:
  static constexpr double kFade = 0.95;
  /// Weight of the line through the origin: as strong as the measurements when sizes vary by a seventh.
  static constexpr double kOriginWeight = 0.02;
  /// Minimum slope, as a share of the average time of a token: noise must not make tokens free.
  static constexpr double kMinShare = 0.1;

  double n_ = 0;
  double x_ = 0;
  double y_ = 0;
  double xx_ = 0;
  double xy_ = 0;
};

}  // namespace pagoda::scheduling

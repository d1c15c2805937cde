#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>

#include "engine/types.hpp"

namespace pagoda::scheduling {

/// What steps of so many tokens take: a mean for each power of two, in which older steps of that size fade and those of
/// other sizes change nothing. Between the means lie straight lines; beyond the largest, tokens cost what they cost
/// there on average, which is more than they will, for the weights are read once a step.
class StepTimeCurve {
 public:
  void step_measured(std::int64_t num_tokens, TimeUs duration_us) {
    if (num_tokens <= 0 || duration_us <= 0) return;
    const auto size = static_cast<std::size_t>(std::bit_width(static_cast<std::uint64_t>(num_tokens - 1)));
    Point& point = points_[std::min(size, points_.size() - 1)];
    const double weight = point.tokens == 0 ? 1 : kWeightOfNewest;
    point.tokens += weight * (static_cast<double>(num_tokens) - point.tokens);
    point.us += weight * (static_cast<double>(duration_us) - point.us);
  }

  /// Of the largest step that takes no longer than `limit_us`; less than 1 where none does; 0 before the first
  /// measurement.
  double tokens_within(double limit_us) const {
    Point below;
    for (const Point& point : points_) {
      if (point.tokens == 0) continue;
      const double us = std::max(point.us, below.us);  // more tokens never take less
      if (us > limit_us) {
        if (below.tokens == 0) return point.tokens * limit_us / us;
        return below.tokens + (point.tokens - below.tokens) * (limit_us - below.us) / (us - below.us);
      }
      below = {point.tokens, us};
    }
    return below.tokens == 0 ? 0 : below.tokens * limit_us / below.us;
  }

  static constexpr auto visit_fields(auto& self, auto&& visit) { return visit(self.points_); }

 private:
  static constexpr double kWeightOfNewest = 0.2;
  static constexpr std::size_t kSizes = 18;  ///< up to 2^17 tokens, and more

  struct Point {
    double tokens = 0;  ///< 0 = nothing measured
    double us = 0;

    static constexpr auto visit_fields(auto& self, auto&& visit) { return visit(self.tokens, self.us); }
  };

  std::array<Point, kSizes> points_{};
};

}  // namespace pagoda::scheduling

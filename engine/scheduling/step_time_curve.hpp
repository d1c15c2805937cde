#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <limits>

#include "engine/types.hpp"

namespace pagoda::scheduling {

/// The duration of steps by their number of tokens: a mean for each power of two, in which older steps of that size
/// fade. Steps of other sizes do not change a mean. But a size that was not run in the last kRemembered steps is
/// forgotten: it may have been slow once, and a size that is avoided for that would never be measured again. Between
/// the means the curve is linear. Beyond the largest mean, a token costs the average of that mean. This is more than
/// the real cost, because a step reads the weights once.
class StepTimeCurve {
 public:
  void step_measured(std::int64_t num_tokens, TimeUs duration_us) {
    if (num_tokens <= 0 || duration_us <= 0) return;
    Point& point = points_[size_of(num_tokens)];
    ++steps_;
    if (!is_known(point)) point = {};
    const double weight = point.count < 2 ? 1 : kWeightOfNewest;  // the first step of a size is often slow
    point.count = std::min(point.count + 1, kFewSteps);
    point.step = steps_;
    point.tokens += weight * (static_cast<double>(num_tokens) - point.tokens);
    point.us += weight * (static_cast<double>(duration_us) - point.us);
  }

  /// Returns the number of tokens of the largest step that takes at most `limit_us`; less than 1 if no step does; 0
  /// before the first measurement.
  double tokens_within(double limit_us) const {
    Point below;
    for (const Point& point : points_) {
      if (!is_known(point)) continue;
      const double us = std::max(point.us, below.us);  // more tokens never take less
      if (us > limit_us) {
        if (below.tokens == 0) return point.tokens * limit_us / us;
        return below.tokens + (point.tokens - below.tokens) * (limit_us - below.us) / (us - below.us);
      }
      below = {point.tokens, us};
    }
    return below.tokens == 0 ? 0 : below.tokens * limit_us / below.us;
  }

  /// Returns the average duration of a step of `num_tokens`. A step below the smallest known size takes as long as that
  /// size. 0 before the first measurement.
  double us_of(std::int64_t num_tokens) const {
    return us_of(num_tokens, [this](const Point& point) { return is_known(point); });
  }

  /// Returns as us_of(), but a size of which few steps were measured takes what sizes near it let expect. If no larger
  /// one is known, it takes as much as the next smaller one, and for each further token what that cost more than the
  /// one before. So such sizes are tried if they may pay. No step is tried that is more than 16 times as large as those
  /// that were measured: it takes infinitely long.
  double expected_us_of(std::int64_t num_tokens) const {
    constexpr std::size_t kNear = 4;  // in powers of two
    const auto counts = [this](const Point& point) { return is_sure(point); };
    const std::size_t size = size_of(num_tokens);
    std::size_t below = size + 1;  // one more than the next sure size that is not larger
    while (below > 0 && !is_sure(points_[below - 1])) --below;
    if (below == 0) return us_of(num_tokens);
    bool is_between = below == size + 1;
    for (std::size_t i = size + 1; i < std::min(below + kNear, kSizes); ++i) is_between |= is_sure(points_[i]);
    if (is_between) return us_of(num_tokens, counts);
    if (size >= below + kNear) return std::numeric_limits<double>::infinity();
    const Point& point = points_[below - 1];
    std::size_t before = below - 1;
    while (before > 0 && !is_sure(points_[before - 1])) --before;
    if (before == 0) return point.us;
    const Point& smaller = points_[before - 1];
    const double us_per_token = std::max(0.0, (point.us - smaller.us) / (point.tokens - smaller.tokens));
    return point.us + us_per_token * (static_cast<double>(num_tokens) - point.tokens);
  }

  /// Returns whether a size was measured several times.
  bool is_sure() const {
    return std::ranges::any_of(points_, [this](const Point& point) { return is_sure(point); });
  }

  static constexpr auto visit_fields(auto& self, auto&& visit) { return visit(self.points_, self.steps_); }

 private:
  static constexpr double kWeightOfNewest = 0.2;
  static constexpr std::size_t kSizes = 18;  ///< the last size also includes larger steps

  static constexpr std::int64_t kRemembered = 4096;
  /// With fewer steps, a mean may be far off.
  static constexpr std::int32_t kFewSteps = 4;

  struct Point {
    double tokens = 0;
    double us = 0;
    std::int64_t step = 0;   ///< last step that measured it; 0 = none
    std::int32_t count = 0;  ///< number of steps that measured it, up to kFewSteps

    static constexpr auto visit_fields(auto& self, auto&& visit) {
      return visit(self.tokens, self.us, self.step, self.count);
    }
  };

  /// Returns the duration by the points that count.
  template <class Counts>
  double us_of(std::int64_t num_tokens, const Counts& counts) const {
    const auto tokens = static_cast<double>(num_tokens);
    Point below;
    for (const Point& point : points_) {
      if (!counts(point)) continue;
      const double us = std::max(point.us, below.us);
      if (point.tokens >= tokens) {
        if (below.tokens == 0) return us;
        return below.us + (us - below.us) * (tokens - below.tokens) / (point.tokens - below.tokens);
      }
      below = {point.tokens, us};
    }
    return below.tokens == 0 ? 0 : below.us * tokens / below.tokens;
  }

  static std::size_t size_of(std::int64_t num_tokens) {
    const auto size = static_cast<std::size_t>(std::bit_width(static_cast<std::uint64_t>(num_tokens - 1)));
    return std::min(size, kSizes - 1);
  }
  bool is_sure(const Point& point) const { return is_known(point) && point.count >= kFewSteps; }
  bool is_known(const Point& point) const { return point.step != 0 && steps_ - point.step < kRemembered; }

  std::array<Point, kSizes> points_{};
  std::int64_t steps_ = 0;
};

/// The factor of the mean duration that all but one of 200 steps stay below. A quantile that rises with each step that
/// took longer, and falls a little with each other step (Robbins and Monro, 1951).
class StepLateness {
 public:
  void step_measured(double expected_us, TimeUs duration_us) {
    if (expected_us <= 0) return;
    const bool late = static_cast<double>(duration_us) > times_ * expected_us;
    times_ = std::clamp(times_ + kStep * ((late ? 1 : 0) - kLateShare), 1.0, kMaxFactor);
  }

  double factor_of_mean() const { return times_; }

  static constexpr auto visit_fields(auto& self, auto&& visit) { return visit(self.times_); }

 private:
  static constexpr double kLateShare = 0.005;
  static constexpr double kStep = 0.04;
  static constexpr double kMaxFactor = 2;

  double times_ = 1.2;  // value of the processors in the benchmarks
};

}  // namespace pagoda::scheduling

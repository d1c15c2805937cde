#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <optional>

#include "engine/types.hpp"

namespace pagoda::routing {

/// Forecasts the time to the first token of a request that arrives now. By Little's law the request waits until enough
/// earlier requests have ended, at the rate at which requests end while all rows are taken. Then its own prompt is
/// computed. The number of requests that run at once is estimated by the waiting times of requests that have ended,
/// because KV memory may hold fewer requests than there are rows. A plain state machine.
class TtftForecast {
 public:
  explicit TtftForecast(std::int64_t max_rows) : max_rows_(static_cast<double>(max_rows)) {}

  /// Call when replicas have gone or have come back, with the rows of those that are left.
  void set_max_rows(std::int64_t max_rows) {
    const auto rows = static_cast<double>(max_rows);
    rows_ *= rows / max_rows_;
    max_rows_ = rows;
  }

  /// Returns seconds; 0 where nothing is known yet. `num_before`: number of live requests that came before it.
  double seconds(std::int64_t num_before, std::int64_t prompt_tokens) const {
    const double too_many = static_cast<double>(num_before) + 1 - rows();
    const double wait = too_many > 0 && ends_ > 0 ? too_many * busy_s_ / ends_ : 0;
    const double prompt = prompt_tokens_ > 0 ? prompt_s_ / prompt_tokens_ * static_cast<double>(prompt_tokens) : 0;
    return wait + prompt;
  }

  /// Call when a request has become live. `num_live` includes it.
  void on_began(std::int64_t num_live, TimeUs now) {
    if (static_cast<double>(num_live) < rows() || busy_since_us_) return;
    busy_since_us_ = now;
  }

  /// Call when a request has ended. `num_live` are left.
  void on_ended(std::int64_t num_live, TimeUs now) {
    if (!busy_since_us_) return;
    const double seconds = static_cast<double>(std::max<TimeUs>(0, now - *busy_since_us_)) / 1e6;
    const double kept = std::exp(-seconds / kWindowSeconds);
    busy_s_ = busy_s_ * kept + seconds;
    ends_ = ends_ * kept + 1;
    busy_since_us_ = now;
    if (static_cast<double>(num_live) < rows()) busy_since_us_.reset();
  }

  /// Call when a request has left before it ran; this shows nothing about the rate. `num_live` are left. When rows are
  /// free, the time until they are taken again counts as idle.
  void on_left(std::int64_t num_live) {
    if (static_cast<double>(num_live) < rows()) busy_since_us_.reset();
  }

  /// Records the times, since its arrival, of a request that had `num_before` requests before it.
  void record_times(std::int64_t num_before, TimeUs queue_us, TimeUs ttft_us, std::int64_t prompt_tokens) {
    prompt_s_ = (1 - kShare) * prompt_s_ + kShare * static_cast<double>(std::max<TimeUs>(0, ttft_us - queue_us)) / 1e6;
    prompt_tokens_ = (1 - kShare) * prompt_tokens_ + kShare * static_cast<double>(prompt_tokens);
    if (busy_s_ <= 0) return;
    const double overtook = static_cast<double>(queue_us) / 1e6 * ends_ / busy_s_;  // number of ends that it waited for
    const double seen = std::clamp(static_cast<double>(num_before) + 1 - overtook, 1.0, max_rows_);
    // A request that found a free row shows only that there are at least this many rows.
    if (overtook < 1 && seen < rows()) return;
    rows_ = (1 - kShare) * rows() + kShare * seen;
  }

  bool is_valid() const {
    const auto is_amount = [](double value) { return std::isfinite(value) && value >= 0 && value < 1e18; };
    return is_amount(busy_s_) && is_amount(ends_) && is_amount(prompt_s_) && is_amount(prompt_tokens_) &&
           is_amount(rows_) && is_amount(max_rows_) && max_rows_ >= 1 &&
           (!busy_since_us_ || is_valid_time(*busy_since_us_));
  }
  static constexpr auto visit_fields(auto& self, auto&& visit) {
    return visit(self.busy_since_us_, self.busy_s_, self.ends_, self.prompt_s_, self.prompt_tokens_, self.rows_,
                 self.max_rows_);
  }

 private:
  static constexpr double kWindowSeconds = 30;  ///< busy time of this age counts 1/e
  static constexpr double kShare = 1.0 / 16;    ///< weight of one request in an average

  double rows() const { return rows_ > 0 ? rows_ : max_rows_; }

  double max_rows_;
  /// Time since which all rows are taken, or of the last end after it.
  std::optional<TimeUs> busy_since_us_;
  double busy_s_ = 0;
  double ends_ = 0;  ///< number of ends in busy_s_
  double prompt_s_ = 0;
  double prompt_tokens_ = 0;
  double rows_ = 0;  ///< number of rows that run at once; 0 = not known yet
};

}  // namespace pagoda::routing

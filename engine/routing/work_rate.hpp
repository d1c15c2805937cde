#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "engine/types.hpp"

namespace pagoda::routing {

/// The work for a request that has ended.
struct WorkDone {
  std::int64_t prompt_tokens = 0;
  std::int64_t generated_tokens = 0;
  TimeUs queue_us = 0;  ///< time from its arrival to its first step
  TimeUs ttft_us = 0;   ///< time from its arrival to its first token; 0 = there was none

  bool is_valid() const {
    return is_valid_count(prompt_tokens) && is_valid_count(generated_tokens) && is_valid_time(queue_us) &&
           is_valid_time(ttft_us);
  }
  static constexpr auto visit_fields(auto& self, auto&& visit) {
    return visit(self.prompt_tokens, self.generated_tokens, self.queue_us, self.ttft_us);
  }
};

/// The rate at which the engine works off requests, measured over about the last minute in which there were any. A
/// plain state machine.
class WorkRate {
 public:
  static constexpr double kWindowSeconds = 30;  ///< work of this age counts 1/e

  /// Call when there is work again.
  void begin(TimeUs now) { since_us_ = now; }

  /// Call when a request has ended.
  void on_ended(const WorkDone& work, TimeUs now) {
    const double seconds = std::max(0.0, static_cast<double>(now - since_us_) / 1e6);
    since_us_ = now;
    const double kept = std::exp(-seconds / kWindowSeconds);
    seconds_ = seconds_ * kept + seconds;
    tokens_ = tokens_ * kept + static_cast<double>(work.prompt_tokens + work.generated_tokens);
    generated_ = generated_ * kept + static_cast<double>(work.generated_tokens);
    requests_ = requests_ * kept + 1;
  }

  /// Returns tokens of prompts and outputs per second; 0 = not known yet.
  double tokens_per_s() const { return seconds_ > 0 ? tokens_ / seconds_ : 0; }

  /// Returns the time to work off `num_requests` requests with `prompt_tokens` in total, if each generates as much as
  /// the requests before; 0 = not known yet.
  double seconds_for(std::int64_t num_requests, std::int64_t prompt_tokens) const {
    const double rate = tokens_per_s();
    if (rate <= 0 || requests_ <= 0) return 0;
    const double generated = generated_ / requests_ * static_cast<double>(num_requests);
    return (static_cast<double>(prompt_tokens) + generated) / rate;
  }

  /// Returns whether an object that was read from bytes is valid for arithmetic.
  bool is_valid() const {
    const auto is_amount = [](double value) { return std::isfinite(value) && value >= 0 && value < 1e18; };
    return is_amount(seconds_) && is_amount(tokens_) && is_amount(generated_) && is_amount(requests_) &&
           is_valid_time(since_us_);
  }
  static constexpr auto visit_fields(auto& self, auto&& visit) {
    return visit(self.seconds_, self.tokens_, self.generated_, self.requests_, self.since_us_);
  }

 private:
  double seconds_ = 0;
  double tokens_ = 0;
  double generated_ = 0;
  double requests_ = 0;
  TimeUs since_us_ = 0;
};

}  // namespace pagoda::routing

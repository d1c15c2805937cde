#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "engine/types.hpp"

namespace pagoda::routing {

/// What a request has cost that has ended.
struct WorkDone {
  std::int64_t prompt_tokens = 0;
  std::int64_t generated_tokens = 0;
  TimeUs queue_us = 0;  ///< from its arrival to its first step
  TimeUs ttft_us = 0;   ///< from its arrival to its first token; 0: there was none

  bool is_sound() const {
    return is_sound_count(prompt_tokens) && is_sound_count(generated_tokens) && is_sound_time(queue_us) &&
           is_sound_time(ttft_us);
  }
  static constexpr auto visit_fields(auto& self, auto&& visit) {
    return visit(self.prompt_tokens, self.generated_tokens, self.queue_us, self.ttft_us);
  }
};

/// How fast requests are worked off, measured over about the last minute in which there were any. A plain state
/// machine.
class WorkRate {
 public:
  static constexpr double kWindowSeconds = 30;  ///< what is older by so much counts for 1/e

  /// There is work again.
  void begin(TimeUs now) { since_us_ = now; }

  /// A request has ended.
  void ended(const WorkDone& work, TimeUs now) {
    const double seconds = std::max(0.0, static_cast<double>(now - since_us_) / 1e6);
    since_us_ = now;
    const double kept = std::exp(-seconds / kWindowSeconds);
    seconds_ = seconds_ * kept + seconds;
    tokens_ = tokens_ * kept + static_cast<double>(work.prompt_tokens + work.generated_tokens);
    generated_ = generated_ * kept + static_cast<double>(work.generated_tokens);
    requests_ = requests_ * kept + 1;
  }

  /// Of prompts and outputs; 0: not known yet.
  double tokens_per_s() const { return seconds_ > 0 ? tokens_ / seconds_ : 0; }

  /// How long so many requests with so many prompt tokens take to be worked off, if each generates as much as those
  /// before them; 0: not known yet.
  double seconds_for(std::int64_t num_requests, std::int64_t prompt_tokens) const {
    const double rate = tokens_per_s();
    if (rate <= 0 || requests_ <= 0) return 0;
    const double generated = generated_ / requests_ * static_cast<double>(num_requests);
    return (static_cast<double>(prompt_tokens) + generated) / rate;
  }

  /// Whether one that was read may be computed with.
  bool is_sound() const {
    const auto is_amount = [](double value) { return std::isfinite(value) && value >= 0 && value < 1e18; };
    return is_amount(seconds_) && is_amount(tokens_) && is_amount(generated_) && is_amount(requests_) &&
           is_sound_time(since_us_);
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

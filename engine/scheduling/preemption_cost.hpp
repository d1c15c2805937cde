#pragma once

#include <cstdint>

#include "engine/types.hpp"

namespace pagoda::scheduling {

/// The cost of taking a sequence's KV away and bringing it back: by computing its tokens again, or by moving its blocks
/// to the host pool and back. Costs are averages of measurements, weighted by size, in which older measurements fade.
/// Before the first measurement they are guesses for a small model on a CPU.
class PreemptionCost {
 public:
  static constexpr double kGuessedUsPerToken = 100.0;
  static constexpr double kGuessedSwapBytesPerUs = 2000.0;

  /// Records a step of `num_tokens` tokens, `num_prompt_tokens` of them in chunks of prompts. Steps that mostly decode
  /// are ignored, since they do not show the cost of prompts.
  void step_measured(std::int64_t num_tokens, std::int64_t num_prompt_tokens, TimeUs duration_us) {
    if (2 * num_prompt_tokens < num_tokens || num_prompt_tokens == 0 || duration_us <= 0) return;
    us_ = kFade * us_ + static_cast<double>(duration_us);
    tokens_ = kFade * tokens_ + static_cast<double>(num_tokens);
  }

  void swap_measured(std::int64_t num_bytes, TimeUs duration_us) {
    if (num_bytes <= 0 || duration_us < 0) return;
    swap_us_ = kFade * swap_us_ + static_cast<double>(duration_us);
    swap_bytes_ = kFade * swap_bytes_ + static_cast<double>(num_bytes);
  }

  double us_per_token() const { return tokens_ > 0 ? us_ / tokens_ : kGuessedUsPerToken; }
  /// Returns 0 before the first measured swap.
  double measured_swap_bytes_per_s() const { return swap_bytes_ > 0 ? swap_bytes_per_us() * 1e6 : 0.0; }

  double recompute_us(std::int64_t num_tokens) const { return static_cast<double>(num_tokens) * us_per_token(); }
  /// Returns the time for moving out and in again.
  double swap_us(std::int64_t num_bytes) const { return 2.0 * static_cast<double>(num_bytes) / swap_bytes_per_us(); }

  static constexpr auto visit_fields(auto& self, auto&& visit) {
    return visit(self.us_, self.tokens_, self.swap_us_, self.swap_bytes_);
  }

 private:
  static constexpr double kFade = 0.9;

  double swap_bytes_per_us() const {
    if (swap_bytes_ <= 0) return kGuessedSwapBytesPerUs;
    return swap_bytes_ / (swap_us_ > 1.0 ? swap_us_ : 1.0);  // the clock's own step is 1 us
  }

  double us_ = 0;
  double tokens_ = 0;
  double swap_us_ = 0;
  double swap_bytes_ = 0;
};

}  // namespace pagoda::scheduling

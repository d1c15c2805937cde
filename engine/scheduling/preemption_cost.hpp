#pragma once

#include <cstdint>

#include "engine/types.hpp"

namespace pagoda::scheduling {

/// What it costs to take a sequence's KV away and bring it back: computing its tokens again, or moving its blocks to
/// the host pool and back. Averages over what was measured, in which each measurement weighs by its size and older ones
/// fade; before the first, guesses for a small model on a CPU.
class PreemptionCost {
 public:
  static constexpr double kGuessedUsPerToken = 100.0;
  static constexpr double kGuessedSwapBytesPerUs = 2000.0;

  /// A step ran `num_tokens`, `num_prompt_tokens` of them in chunks of prompts. Steps that mostly decode say nothing
  /// about computing prompts.
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
  /// 0 until a swap was measured.
  double measured_swap_bytes_per_s() const { return swap_bytes_ > 0 ? swap_bytes_per_us() * 1e6 : 0.0; }

  double recompute_us(std::int64_t num_tokens) const { return static_cast<double>(num_tokens) * us_per_token(); }
  /// Out and in again.
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

#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <deque>
#include <optional>

#include "engine/types.hpp"

namespace pagoda::execution {

/// Until when each step in flight must have ended: ten times what steps of as many tokens were measured to take, but at
/// least a second; or a fixed time. A device that misses it hangs. A plain state machine that is told the time.
class StepDeadlines {
 public:
  /// `fixed_us`: every step has so long; 0 = by measured times.
  explicit StepDeadlines(TimeUs fixed_us) : fixed_us_(fixed_us) {}

  /// A device begins, with no step in flight. What was measured of the one before it stays.
  void begin() {
    in_flight_.clear();
    is_first_ = true;
  }

  /// A step was sent: behind moves of so many bytes it runs so many tokens.
  void sent(StepId step, std::int64_t num_tokens, std::int64_t moved_bytes, TimeUs now) {
    in_flight_.push_back({step, num_tokens, moved_bytes, now});
  }

  /// Its result has come.
  void ended(StepId step, TimeUs now) {
    if (in_flight_.empty() || in_flight_.front().step != step) return;
    const InFlight ended = in_flight_.front();
    in_flight_.pop_front();
    // A first step also reads weights and takes memory, one behind moves waits for them: neither tells what steps take.
    if (!is_first_ && ended.moved_bytes == 0) measured(ended.num_tokens, now - begun(ended));
    is_first_ = false;
    last_ended_us_ = now;
  }

  struct Deadline {
    StepId step = 0;
    TimeUs at_us = 0;
    TimeUs allowed_us = 0;
  };
  /// Of the oldest step in flight; none when there is none.
  std::optional<Deadline> next() const {
    if (in_flight_.empty()) return std::nullopt;
    const InFlight& oldest = in_flight_.front();
    const TimeUs allowed = allowed_us(oldest);
    return Deadline{oldest.step, begun(oldest) + allowed, allowed};
  }

  std::size_t num_in_flight() const { return in_flight_.size(); }

 private:
  static constexpr TimeUs kLeastUs = 1'000'000;
  static constexpr TimeUs kTimesMeasured = 10;
  /// Of a step that nothing is known of: a device's first, which may read its weights from a disk.
  static constexpr TimeUs kUnknownUs = 60'000'000;
  /// Bytes per microsecond of the slowest disk that is worth swapping to.
  static constexpr std::int64_t kSlowestMove = 20;
  static constexpr std::size_t kNumSizes = 32;

  struct InFlight {
    StepId step = 0;
    std::int64_t num_tokens = 0;
    std::int64_t moved_bytes = 0;
    TimeUs sent_us = 0;
  };

  /// Steps run one after the other.
  TimeUs begun(const InFlight& step) const { return std::max(step.sent_us, last_ended_us_); }

  /// Steps whose numbers of tokens have equally many bits are alike.
  static std::size_t size_of(std::int64_t num_tokens) {
    return std::min<std::size_t>(std::bit_width(static_cast<std::uint64_t>(std::max<std::int64_t>(num_tokens, 0))),
                                 kNumSizes - 1);
  }

  void measured(std::int64_t num_tokens, TimeUs duration_us) {
    TimeUs& longest = longest_us_[size_of(num_tokens)];
    longest = std::max(duration_us, longest - longest / 64);
  }

  /// By steps of that size, larger ones, or smaller ones as if each token took its time. 0 = nothing is known.
  TimeUs expected_us(std::int64_t num_tokens) const {
    const std::size_t size = size_of(num_tokens);
    for (std::size_t i = size; i < kNumSizes; ++i) {
      if (longest_us_[i] > 0) return longest_us_[i];
    }
    for (std::size_t i = size; i-- > 0;) {
      if (longest_us_[i] > 0) return longest_us_[i] << (size - i);
    }
    return 0;
  }

  TimeUs allowed_us(const InFlight& step) const {
    if (fixed_us_ > 0) return fixed_us_;
    const TimeUs expected = expected_us(step.num_tokens);
    const TimeUs moves_us = step.moved_bytes / kSlowestMove;
    if (is_first_ || expected == 0) return kUnknownUs + moves_us;
    return std::max(kLeastUs, kTimesMeasured * expected) + moves_us;
  }

  TimeUs fixed_us_;
  std::deque<InFlight> in_flight_;
  bool is_first_ = true;  ///< no step of this device has ended
  TimeUs last_ended_us_ = 0;
  std::array<TimeUs, kNumSizes> longest_us_{};  ///< by size, slowly forgotten
};

}  // namespace pagoda::execution

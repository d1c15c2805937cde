#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <deque>
#include <optional>

#include "engine/types.hpp"

namespace pagoda::execution {

/// What a step has to do, as far as its time follows from it.
struct StepSize {
  std::int64_t num_tokens = 0;
  std::int64_t num_pairs = 0;    ///< of a query and a key: the sum over its tokens of their positions, about
  std::int64_t moved_bytes = 0;  ///< by the cache plans before it
};

/// Until when each step in flight must have ended: ten times what steps of as many tokens were measured to take, but at
/// least a second; or a fixed time. A device that misses it hangs. A plain state machine that is told the time.
class StepDeadlines {
 public:
  /// `fixed_us`: every step has so long; 0 = by measured times. `weight_bytes`: of the model, by which a step is judged
  /// that nothing was measured of.
  explicit StepDeadlines(TimeUs fixed_us, std::int64_t weight_bytes = 0)
      : fixed_us_(fixed_us), weight_bytes_(weight_bytes) {}

  /// A device begins, with no step in flight. What was measured of the one before it stays.
  void begin() {
    in_flight_.clear();
    is_first_ = true;
  }

  /// A step that waits for masks has no deadline before they are sent: making them takes time that is not the device's.
  void sent(StepId step, const StepSize& size, TimeUs now, bool waits_for_masks = false) {
    in_flight_.push_back({step, size, now, waits_for_masks});
  }
  void masks_sent(StepId step, TimeUs now) {
    for (InFlight& one : in_flight_) {
      if (one.step != step) continue;
      one.sent_us = now;
      one.waits_for_masks = false;
    }
  }

  /// Its result has come.
  void ended(StepId step, TimeUs now) {
    if (in_flight_.empty() || in_flight_.front().step != step) return;
    const InFlight ended = in_flight_.front();
    in_flight_.pop_front();
    // A first step also reads weights and takes memory, one behind moves waits for them: neither tells what steps take.
    if (!is_first_ && ended.size.moved_bytes == 0) measured(ended.size, now - begun(ended));
    is_first_ = false;
    last_ended_us_ = now;
  }

  /// Nobody could look for so long: it does not count for the steps in flight.
  void paused(TimeUs duration_us) {
    for (InFlight& step : in_flight_) step.sent_us += duration_us;
    last_ended_us_ += duration_us;
  }

  /// The oldest step in flight is given up. The next one like it has twice the time: it may have needed it.
  void gave_up() {
    const InFlight& oldest = in_flight_.front();
    measured(oldest.size, 2 * allowed_us(oldest) / kTimesMeasured);
  }

  struct Deadline {
    StepId step = 0;
    TimeUs at_us = 0;
    TimeUs allowed_us = 0;
  };
  /// Of the oldest step in flight; none when there is none, or it waits for masks.
  std::optional<Deadline> next() const {
    if (in_flight_.empty() || in_flight_.front().waits_for_masks) return std::nullopt;
    const InFlight& oldest = in_flight_.front();
    const TimeUs allowed = allowed_us(oldest);
    return Deadline{oldest.step, begun(oldest) + allowed, allowed};
  }

  std::size_t num_in_flight() const { return in_flight_.size(); }

 private:
  static constexpr TimeUs kMinUs = 1'000'000;
  static constexpr TimeUs kTimesMeasured = 10;
  /// Of a step that nothing is known of: a device's first, which may also read its weights from a disk.
  static constexpr TimeUs kUnknownUs = 60'000'000;
  /// What no device of use stays below: bytes per microsecond of a disk to swap to and of one to read weights from, and
  /// bytes of weights by which tokens are multiplied.
  static constexpr std::int64_t kSlowestMove = 20;
  static constexpr std::int64_t kSlowestRead = 200;
  static constexpr std::int64_t kSlowestProduct = 5'000;
  /// Longest contexts grow by and by; of a step with many times those that were measured no more than this is believed.
  static constexpr TimeUs kMaxGuessedUs = 600'000'000;
  static constexpr std::size_t kNumClasses = 32;

  struct InFlight {
    StepId step = 0;
    StepSize size;
    TimeUs sent_us = 0;
    bool waits_for_masks = false;
  };
  /// What steps of a class took.
  struct Measured {
    TimeUs longest_us = 0;        ///< slowly forgotten; 0 = nothing is known
    std::int64_t most_pairs = 0;  ///< likewise
  };

  /// Steps run one after the other.
  TimeUs begun(const InFlight& step) const { return std::max(step.sent_us, last_ended_us_); }

  /// Steps whose numbers of tokens have equally many bits are alike.
  static std::size_t class_of(std::int64_t num_tokens) {
    return std::min<std::size_t>(std::bit_width(static_cast<std::uint64_t>(std::max<std::int64_t>(num_tokens, 0))),
                                 kNumClasses - 1);
  }

  void measured(const StepSize& size, TimeUs duration_us) {
    Measured& known = measured_[class_of(size.num_tokens)];
    known.longest_us = std::max(duration_us, known.longest_us - known.longest_us / 64);
    known.most_pairs = std::max(size.num_pairs, known.most_pairs - known.most_pairs / 64);
  }

  /// By steps of that class, larger ones, or smaller ones as if each token took its time. 0 = nothing is known.
  TimeUs expected_us(const StepSize& size) const {
    const std::size_t own = class_of(size.num_tokens);
    for (std::size_t i = own; i < kNumClasses; ++i) {
      if (measured_[i].longest_us > 0) return with_pairs(measured_[i], 1, size);
    }
    for (std::size_t i = own; i-- > 0;) {
      if (measured_[i].longest_us > 0) return with_pairs(measured_[i], std::int64_t{1} << (own - i), size);
    }
    return 0;
  }

  /// What was measured, with `factor` times the tokens: a part of the time is in proportion to the pairs, so all of it
  /// is at most.
  static TimeUs with_pairs(const Measured& known, std::int64_t factor, const StepSize& size) {
    const double pairs = static_cast<double>(std::max<std::int64_t>(known.most_pairs, 1)) * static_cast<double>(factor);
    const double times = static_cast<double>(factor) * std::max(1.0, static_cast<double>(size.num_pairs) / pairs);
    const double guessed = static_cast<double>(known.longest_us) * times;
    const TimeUs most = std::max(known.longest_us, kMaxGuessedUs / kTimesMeasured);
    return guessed < static_cast<double>(most) ? static_cast<TimeUs>(guessed) : most;
  }

  TimeUs allowed_us(const InFlight& step) const {
    if (fixed_us_ > 0) return fixed_us_;
    const TimeUs expected = expected_us(step.size);
    const TimeUs moves_us = step.size.moved_bytes / kSlowestMove;
    const TimeUs allowed = std::max(kMinUs, kTimesMeasured * expected) + moves_us;
    if (!is_first_ && expected > 0) return allowed;
    const TimeUs unknown =
        kUnknownUs + weight_bytes_ / kSlowestRead + step.size.num_tokens * (weight_bytes_ / kSlowestProduct);
    return std::max(allowed, unknown + moves_us);
  }

  TimeUs fixed_us_;
  std::int64_t weight_bytes_;
  std::deque<InFlight> in_flight_;
  bool is_first_ = true;  ///< no step of this device has ended
  TimeUs last_ended_us_ = 0;
  std::array<Measured, kNumClasses> measured_{};  ///< by class
};

}  // namespace pagoda::execution

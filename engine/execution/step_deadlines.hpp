#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <deque>
#include <optional>

#include "engine/types.hpp"

namespace pagoda::execution {

/// The size of a step, from which its duration follows.
struct StepSize {
  std::int64_t num_tokens = 0;
  /// Number of pairs of a query and a key: about the sum of the positions of the step's tokens.
  std::int64_t num_pairs = 0;
  std::int64_t num_draft_tokens = 0;  ///< number of tokens that the draft model reads and makes
  std::int64_t num_draft_pairs = 0;   ///< num_pairs of these
  std::int64_t moved_bytes = 0;       ///< bytes that the cache plans before it move
  std::int64_t num_loads = 0;         ///< number of adapters that it has to load
};

/// The deadline of each step in flight: ten times the measured duration of steps with a similar number of tokens, but
/// at least a second; or a fixed time. Tokens of the draft model are allowed the time of other tokens, but take less: a
/// measured duration is that of the step's other tokens. A device that misses a deadline counts as hung. A plain state
/// machine that receives the time as an argument.
class StepDeadlines {
 public:
  /// `fixed_us`: time of every step; 0 = by measured durations. `weight_bytes`: size of the model's weights, for the
  /// estimate of a step without measurements.
  explicit StepDeadlines(TimeUs fixed_us, std::int64_t weight_bytes = 0)
      : fixed_us_(fixed_us), weight_bytes_(weight_bytes) {}

  /// Call when a device begins, with no step in flight. The measurements of the device before it stay.
  void begin() {
    in_flight_.clear();
    is_first_ = true;
  }

  /// Adds a step. If it waits for masks, it has no deadline before they are sent, since making masks is not the
  /// device's time.
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

  /// Call when the result of the step has arrived.
  void ended(StepId step, TimeUs now) {
    if (in_flight_.empty() || in_flight_.front().step != step) return;
    const InFlight ended = in_flight_.front();
    in_flight_.pop_front();
    // A first step also reads weights and allocates memory, and a step behind moves or loads waits for them: neither
    // shows the duration of steps.
    if (!is_first_ && ended.size.moved_bytes == 0 && ended.size.num_loads == 0)
      measured(ended.size, now - begun(ended));
    is_first_ = false;
    last_ended_us_ = now;
  }

  /// Call when the deadlines could not be checked for this time: it does not count for the steps in flight.
  void paused(TimeUs duration_us) {
    for (InFlight& step : in_flight_) step.sent_us += duration_us;
    last_ended_us_ += duration_us;
  }

  /// Call when the oldest step in flight is given up. The next step like it gets twice the time, which this one may
  /// have needed.
  void gave_up() {
    const InFlight& oldest = in_flight_.front();
    measured(oldest.size, 2 * allowed_us(oldest) / kTimesMeasured);
  }

  struct Deadline {
    StepId step = 0;
    TimeUs at_us = 0;
    TimeUs allowed_us = 0;
  };
  /// Returns the deadline of the oldest step in flight; nothing when there is none, or when it waits for masks.
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
  /// Time of a step without measurements, such as a device's first step, which may also read weights from a disk.
  static constexpr TimeUs kUnknownUs = 60'000'000;
  static constexpr TimeUs kLoadUs = 60'000'000;  ///< time of loading one adapter
  /// Minimum speeds of usable devices, per microsecond: bytes of a disk to swap to, bytes of a disk to read weights
  /// from, and bytes of weights that one token is multiplied by.
  static constexpr std::int64_t kSlowestMove = 20;
  static constexpr std::int64_t kSlowestRead = 200;
  static constexpr std::int64_t kSlowestProduct = 5'000;
  /// Limit of an estimate from measurements. Contexts grow slowly, so a step with many times the measured pairs gets no
  /// more.
  static constexpr TimeUs kMaxGuessedUs = 600'000'000;
  static constexpr std::size_t kNumClasses = 32;

  struct InFlight {
    StepId step = 0;
    StepSize size;
    TimeUs sent_us = 0;
    bool waits_for_masks = false;
  };
  /// The measured durations of a class of steps.
  struct Measured {
    TimeUs longest_us = 0;       ///< falls slowly; 0 = nothing is known
    std::int64_t max_pairs = 0;  ///< falls slowly too
  };

  /// Returns when the step began. Steps run one after the other.
  TimeUs begun(const InFlight& step) const { return std::max(step.sent_us, last_ended_us_); }

  /// Returns the class of steps with `num_tokens`: numbers of tokens with equally many bits are one class.
  static std::size_t class_of(std::int64_t num_tokens) {
    return std::min<std::size_t>(std::bit_width(static_cast<std::uint64_t>(std::max<std::int64_t>(num_tokens, 0))),
                                 kNumClasses - 1);
  }

  void measured(const StepSize& size, TimeUs duration_us) {
    Measured& known = measured_[class_of(size.num_tokens)];
    known.longest_us = std::max(duration_us, known.longest_us - known.longest_us / 64);
    known.max_pairs = std::max(size.num_pairs, known.max_pairs - known.max_pairs / 64);
  }

  /// Estimates by measured steps of the class, of larger classes, or of smaller ones as if each token took the same
  /// time. 0 = nothing is known.
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

  /// Scales a measurement to `factor` times the tokens. A part of the time is proportional to the pairs; to be safe all
  /// of it is scaled.
  static TimeUs with_pairs(const Measured& known, std::int64_t factor, const StepSize& size) {
    const double pairs = static_cast<double>(std::max<std::int64_t>(known.max_pairs, 1)) * static_cast<double>(factor);
    const double times = static_cast<double>(factor) * std::max(1.0, static_cast<double>(size.num_pairs) / pairs);
    const double guessed = static_cast<double>(known.longest_us) * times;
    const TimeUs most = std::max(known.longest_us, kMaxGuessedUs / kTimesMeasured);
    return guessed < static_cast<double>(most) ? static_cast<TimeUs>(guessed) : most;
  }

  TimeUs allowed_us(const InFlight& step) const {
    if (fixed_us_ > 0) return fixed_us_;
    StepSize all = step.size;
    all.num_tokens += all.num_draft_tokens;
    all.num_pairs += all.num_draft_pairs;
    const TimeUs expected = expected_us(all);
    const TimeUs before_us = step.size.moved_bytes / kSlowestMove + step.size.num_loads * kLoadUs;
    const TimeUs allowed = std::max(kMinUs, kTimesMeasured * expected) + before_us;
    if (!is_first_ && expected > 0) return allowed;
    const TimeUs unknown =
        kUnknownUs + weight_bytes_ / kSlowestRead + all.num_tokens * (weight_bytes_ / kSlowestProduct);
    return std::max(allowed, unknown + before_us);
  }

  TimeUs fixed_us_;
  std::int64_t weight_bytes_;
  std::deque<InFlight> in_flight_;
  bool is_first_ = true;  ///< whether no step of this device has ended
  TimeUs last_ended_us_ = 0;
  std::array<Measured, kNumClasses> measured_{};  ///< by class
};

}  // namespace pagoda::execution

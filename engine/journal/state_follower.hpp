#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "engine/journal/replay.hpp"

namespace pagoda::journal {

/// Takes the states that a StateFollower writes. Thread-safe.
class StateSink {
 public:
  virtual ~StateSink() = default;

  /// Returns the bytes of states that the segment still takes; nothing when it is no longer the segment that is being
  /// written.
  virtual std::optional<std::size_t> room(std::uint64_t segment) const = 0;
  /// Returns the bytes of states that an empty segment takes.
  virtual std::size_t max_room() const = 0;
  /// Returns whether the segment has the state that the core had at its beginning.
  virtual bool has_state(std::uint64_t segment, const CoreId& core) const = 0;
  /// Appends the state that a core had at the beginning of the segment.
  virtual void put_first_state(std::uint64_t segment, std::span<const std::byte> record) = 0;
  /// Reports a state of `bytes` bytes that was left out: no segment has room for it.
  virtual void left_out(std::uint64_t segment, const CoreId& core, std::size_t bytes) = 0;
  /// Reports that the copy of the core has diverged: the core itself has to write its next state.
  virtual void lost(const CoreId& core) = 0;
};

/// Runs copies of the cores from their records, and writes the states that segments begin with. The state of the output
/// core is written first, since a recovery needs nothing else. If it does not fit as a whole, it is written without the
/// data that only a replay needs, and otherwise also without the requests that have ended. Not thread-safe: it has one
/// owner, which owns no core.
class StateFollower {
 public:
  /// `tokenizer`: the model's. Null: the output core is not followed.
  StateFollower(StateSink& sink, std::shared_ptr<const text::Tokenizer> tokenizer)
      : sink_(sink), replay_({}, std::move(tokenizer)) {}

  /// Returns whether states of this core can be written here. The orders of worker and cache engine are small, and a
  /// new worker begins new orders: they write their states themselves.
  static bool can_follow(const CoreId& core) {
    return core.source != Source::step_order && core.source != Source::cache_order;
  }

  /// Takes a record of a core as it was appended to a segment. Pass the records of a core in their order, its state
  /// first.
  void record(std::uint64_t segment, std::span<const std::byte> bytes);

 private:
  struct Followed {
    std::uint64_t segment = 0;     ///< segment of the last record
    std::vector<std::byte> due;    ///< state at the beginning of that segment, until it is written
    std::uint64_t skip_until = 0;  ///< segment before which no state is made, because the last state was far too large
  };
  /// Number of segments without a state of a core whose state did not fit.
  static constexpr std::uint64_t kSkippedSegments = 16;

  void begin_segment(const CoreId& core, std::uint64_t segment);
  void write_output(std::uint64_t segment);
  void write_due(std::uint64_t segment);
  Followed& followed(const CoreId& core) { return followed_[core]; }

  StateSink& sink_;
  Replay replay_;
  std::map<CoreId, Followed> followed_;
};

}  // namespace pagoda::journal

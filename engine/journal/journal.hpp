#pragma once

/// The record of everything that the cores of a running engine are told and do, from which they can be run again.
///
/// Each core has records of its own: its state, what entered it, and a digest of each effect. Records lie in segments,
/// and a segment holds the state that each of its cores had at the segment's beginning, so any segment can be replayed
/// without those before it, and a journal of bounded size drops its oldest. What enters a core is recorded before the
/// core sees it: a journal of a process that has died ends with what it died of.
///
/// A core writes its state itself when its recording begins. Later states come from a StateFollower, which runs copies
/// of the cores on another thread: a large state takes many milliseconds, and no step waits for it.

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "engine/step/codec.hpp"

namespace pagoda::journal {

/// Whose record it is.
enum class Source : std::uint8_t { setup, scheduler, block_manager, step_order, cache_order, router, output };
constexpr Source last_value(Source) {
  return Source::output;
}

/// What a record holds behind its Source. What enters a core is kFirstInput and up.
inline constexpr std::uint8_t kState = 0;
inline constexpr std::uint8_t kEffect = 1;
inline constexpr std::uint8_t kFirstInput = 2;
/// A state of the output core that lacks requests that a recovery does not need: no replay begins with it.
inline constexpr std::uint8_t kRecoveryState = 127;

inline constexpr std::size_t kRecordHeaderBytes = 2;  ///< Source, and what the record holds

/// Takes records. Thread-safe.
class Journal {
 public:
  virtual ~Journal() = default;

  /// The number of the segment that is written; it only grows.
  virtual std::uint64_t segment() const = 0;
  /// Appends to a segment. False, and nothing happens, when that is not the one that is written any more.
  virtual bool append(std::uint64_t segment, std::span<const std::byte> record) = 0;
  /// Appends the state of a core, from which its next records go on. False as append. A state for which the segment has
  /// no room is left out.
  virtual bool append_state(std::uint64_t segment, std::span<const std::byte> record) {
    return append(segment, record);
  }
  /// Whether a follower writes the states of this core, so that the core writes none when a segment begins.
  virtual bool follows(Source) const { return false; }
  /// How much of the requests that have ended the output core may keep (OutputCore), so that its state fits a segment.
  virtual std::size_t max_ended_bytes() const { return std::size_t{4} << 20; }
  /// Secret; set when neither prompts nor outputs may be in the journal (hidden_tokens.hpp).
  virtual std::optional<std::array<std::uint64_t, 2>> token_key() const { return std::nullopt; }
  /// Begins a new segment when this one has little room left. The scheduler calls it between two plans, so that the
  /// states of all cores in a segment fit together.
  virtual void begin_segment_if_full() = 0;
};

/// Null: nothing is recorded.
using SharedJournal = std::shared_ptr<Journal>;

/// For what cannot be recorded without prompts and outputs: null where they must stay out.
SharedJournal unless_tokens_are_hidden(SharedJournal journal);

/// 64 bits that tell whether two effects are the same.
std::uint64_t digest(std::span<const std::byte> bytes);

/// Writes the records of one core. Not thread-safe: one owner, the core's.
class Recorder {
 public:
  /// `save` writes the core's config and state.
  Recorder(SharedJournal journal, Source source, std::function<void(Encoder&)> save)
      : journal_(std::move(journal)), source_(source), save_(std::move(save)) {}

  bool is_on() const { return journal_ != nullptr; }
  /// Nothing more is recorded.
  void stop() { journal_ = nullptr; }
  void begin_segment_if_full() {
    if (journal_) journal_->begin_segment_if_full();
  }

  /// This is about to enter the core.
  template <class Kind, class... Fields>
  void input(Kind kind, const Fields&... fields) {
    if (!journal_) return;
    [[maybe_unused]] Encoder out = begin(static_cast<std::uint8_t>(kFirstInput + static_cast<std::uint8_t>(kind)));
    (out.put(fields), ...);
    append_input();
  }

  /// This came of what entered last.
  template <class Effect>
  void effect(const Effect& effect) {
    if (!journal_) return;
    begin(kEffect).put(effect);
    append_effect();
  }

 private:
  Encoder begin(std::uint8_t what);
  void append_input();
  void append_effect();

  SharedJournal journal_;
  Source source_;
  std::function<void(Encoder&)> save_;
  std::uint64_t segment_ = 0;  ///< that has the core's state
  std::vector<std::byte> record_;
};

}  // namespace pagoda::journal

#pragma once

/// The record of all inputs and effects of the cores of a running engine. The cores can be run again from it.
///
/// Each core has its own records: its state, its inputs, and a digest of each effect. Records lie in segments. A
/// segment holds the state that each of its cores had when the segment began, so any segment can be replayed without
/// the segments before it, and a journal of bounded size drops its oldest segment. An input is recorded before the core
/// receives it: the journal of a process that has died ends with the input that killed it.
///
/// A core writes its state itself when its recording begins. Later states come from a StateFollower, which runs copies
/// of the cores on another thread: writing a large state takes many milliseconds, and no step waits for it.

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

/// The core that a record belongs to.
enum class Source : std::uint8_t { setup, scheduler, block_manager, step_order, cache_order, router, output };
constexpr Source last_value(Source) {
  return Source::output;
}

/// The kind of a record, which stands after its Source. Inputs of a core have kFirstInput and above.
inline constexpr std::uint8_t kState = 0;
inline constexpr std::uint8_t kEffect = 1;
inline constexpr std::uint8_t kFirstInput = 2;
/// A state of the output core without the requests that a recovery does not need. No replay begins with it.
inline constexpr std::uint8_t kRecoveryState = 127;

inline constexpr std::size_t kRecordHeaderBytes = 2;  ///< the Source and the kind of the record

/// Takes records. Thread-safe.
class Journal {
 public:
  virtual ~Journal() = default;

  /// Returns the number of the segment that is being written. It only grows.
  virtual std::uint64_t segment() const = 0;
  /// Appends to a segment. Returns false, and does nothing, when `segment` is no longer the segment that is being
  /// written.
  virtual bool append(std::uint64_t segment, std::span<const std::byte> record) = 0;
  /// Appends the state of a core, from which the core's next records continue. Returns false as append does. A state
  /// that does not fit into the segment is left out.
  virtual bool append_state(std::uint64_t segment, std::span<const std::byte> record) {
    return append(segment, record);
  }
  /// Returns whether a follower writes the states of this core, so that the core writes none when a segment begins.
  virtual bool follows(Source) const { return false; }
  /// Returns the bytes of ended requests that the output core may keep (OutputCore), so that its state fits into a
  /// segment.
  virtual std::size_t max_ended_bytes() const { return std::size_t{4} << 20; }
  /// Returns a secret key if neither prompts nor outputs may be in the journal (hidden_tokens.hpp); otherwise nothing.
  virtual std::optional<std::array<std::uint64_t, 2>> token_key() const { return std::nullopt; }
  /// Begins a new segment when the current segment has little room left. The scheduler calls this between two plans, so
  /// that the states of all cores in a segment fit together.
  virtual void begin_segment_if_full() = 0;
  /// Reports that a core is no longer recorded, because its copy without tokens has diverged from the engine's core.
  virtual void on_diverged(Source) {}
};

/// Null: nothing is recorded.
using SharedJournal = std::shared_ptr<Journal>;

/// Returns null if prompts and outputs must stay out of `journal`, otherwise `journal`. For records that need them.
SharedJournal unless_tokens_are_hidden(SharedJournal journal);

/// Returns a digest of 64 bits, by which two effects are compared.
std::uint64_t digest(std::span<const std::byte> bytes);

/// Writes the records of one core. Not thread-safe: only the core's owner uses it.
class Recorder {
 public:
  /// `save` writes the core's config and state.
  Recorder(SharedJournal journal, Source source, std::function<void(Encoder&)> save)
      : journal_(std::move(journal)), source_(source), save_(std::move(save)) {}

  bool is_on() const { return journal_ != nullptr; }
  /// Stops the recording.
  void stop() { journal_ = nullptr; }
  /// Stops the recording, because the recorded copy of the core has diverged. The journal reports this.
  void stop_diverged() {
    if (const SharedJournal journal = std::exchange(journal_, nullptr)) journal->on_diverged(source_);
  }
  void begin_segment_if_full() {
    if (journal_) journal_->begin_segment_if_full();
  }

  /// Records an input that is about to enter the core.
  template <class Kind, class... Fields>
  void input(Kind kind, const Fields&... fields) {
    if (!journal_) return;
    [[maybe_unused]] Encoder out = begin(static_cast<std::uint8_t>(kFirstInput + static_cast<std::uint8_t>(kind)));
    (out.put(fields), ...);
    append_input();
  }

  /// Records an effect of the last input.
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
  std::uint64_t segment_ = 0;  ///< the segment that has the core's state
  std::vector<std::byte> record_;
};

}  // namespace pagoda::journal

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
#include <compare>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "engine/step/codec.hpp"
#include "engine/types.hpp"
#include "kernels/result.hpp"

namespace pagoda::journal {

/// The kind of a core.
enum class Source : std::uint8_t { setup, scheduler, block_manager, step_order, cache_order, router, output };
constexpr Source last_value(Source) {
  return Source::output;
}

/// The core that a record belongs to: its kind, its replica (scheduler, block manager and below), and its rank (step
/// order, cache order). Cores that all replicas share have 0.
struct CoreId {
  static constexpr std::int32_t kMaxReplicas = 128;
  static constexpr std::int32_t kMaxRanks = 128;

  Source source = Source::setup;
  std::uint8_t replica = 0;
  std::uint8_t rank = 0;

  constexpr CoreId() = default;
  /// Not explicit: a source names the core of an engine that has one of each.
  constexpr CoreId(Source which, Place place = {})  // NOLINT(google-explicit-constructor)
      : source(which), replica(static_cast<std::uint8_t>(place.replica)), rank(static_cast<std::uint8_t>(place.rank)) {
    PAGODA_ASSERT(place.replica >= 0 && place.replica < kMaxReplicas && place.rank >= 0 && place.rank < kMaxRanks,
                  "the place of a recorded core is small");
  }
  auto operator<=>(const CoreId&) const = default;
};

/// Returns the name of a kind of cores for messages.
const char* to_string(Source source);
/// Returns the name of a core for messages: its kind, and its replica and rank unless they are 0.
std::string to_string(const CoreId& core);

/// The kind of a record, which stands after its Source. Inputs of a core have kFirstInput and above.
inline constexpr std::uint8_t kState = 0;
inline constexpr std::uint8_t kEffect = 1;
inline constexpr std::uint8_t kFirstInput = 2;
/// A state of the output core without the requests that a recovery does not need. No replay begins with it.
inline constexpr std::uint8_t kRecoveryState = 127;

/// A record begins with the Source, the kind of the record, the replica and the rank, one byte each.
inline constexpr std::size_t kRecordHeaderBytes = 4;

/// The beginning of a record.
struct RecordHeader {
  CoreId core;
  std::uint8_t what = 0;
};
std::vector<std::byte> header_of(const CoreId& core, std::uint8_t what);
/// Returns nothing if the bytes name no core, or a place that such a core does not have.
std::optional<RecordHeader> read_header(std::span<const std::byte> record);

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
  virtual bool follows(const CoreId&) const { return false; }
  /// Returns the bytes of ended requests that the output core may keep (OutputCore), so that its state fits into a
  /// segment.
  virtual std::size_t max_ended_bytes() const { return std::size_t{4} << 20; }
  /// Returns a secret key if neither prompts nor outputs may be in the journal (hidden_tokens.hpp); otherwise nothing.
  virtual std::optional<std::array<std::uint64_t, 2>> token_key() const { return std::nullopt; }
  /// Begins a new segment when the current segment has little room left. The scheduler calls this between two plans, so
  /// that the states of all cores in a segment fit together.
  virtual void begin_segment_if_full() = 0;
  /// Reports that a core is no longer recorded, because its copy without tokens has diverged from the engine's core.
  virtual void on_diverged(const CoreId&) {}
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
  Recorder(SharedJournal journal, const CoreId& core, std::function<void(Encoder&)> save)
      : journal_(std::move(journal)), core_(core), save_(std::move(save)) {}

  bool is_on() const { return journal_ != nullptr && !has_diverged_; }
  /// Stops the recording.
  void stop() { journal_ = nullptr; }
  /// Stops the recording, because the recorded copy of the core has diverged. The journal reports this. Segments still
  /// begin, for the records of other cores.
  void stop_diverged() {
    if (is_on()) journal_->on_diverged(core_);
    has_diverged_ = true;
  }
  void begin_segment_if_full() {
    if (journal_) journal_->begin_segment_if_full();
  }

  /// Records an input that is about to enter the core.
  template <class Kind, class... Fields>
  void input(Kind kind, const Fields&... fields) {
    if (!is_on()) return;
    [[maybe_unused]] Encoder out = begin(static_cast<std::uint8_t>(kFirstInput + static_cast<std::uint8_t>(kind)));
    (out.put(fields), ...);
    append_input();
  }

  /// Records an effect of the last input.
  template <class Effect>
  void effect(const Effect& effect) {
    if (!is_on()) return;
    begin(kEffect).put(effect);
    append_effect();
  }

 private:
  Encoder begin(std::uint8_t what);
  void append_input();
  void append_effect();

  SharedJournal journal_;
  bool has_diverged_ = false;
  CoreId core_;
  std::function<void(Encoder&)> save_;
  std::uint64_t segment_ = 0;  ///< the segment that has the core's state
  std::vector<std::byte> record_;
};

}  // namespace pagoda::journal

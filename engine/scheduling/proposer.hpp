#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "engine/step/codec.hpp"
#include "engine/types.hpp"

namespace pagoda::scheduling {

struct Sequence;
struct SequenceGroup;

/// The source of drafts for the sequences of a group: tokens that will probably follow. The next step runs them, and
/// samples at the position of each draft, so a wrong draft costs time and changes no token. The group's Decoding owns
/// its Proposer. Called by the scheduler alone, in the order of its events. All results follow from these calls and the
/// saved state, so that a journal replays.
class Proposer {
 public:
  virtual ~Proposer() = default;

  /// Sets `sequence.ahead.drafts` for the next step: at most `max_drafts` tokens behind all known and forced tokens.
  /// Sets `chances` to the chance of each draft that it and all before it are right; to nothing for drafts that the
  /// device makes. Looks at no more than `new_tokens` tokens for the first time, and lowers this number by those.
  /// Called before each plan, for each sequence of a running group that awaits no result of drafts, in any state.
  virtual void propose(const SequenceGroup& group, Sequence& sequence, std::size_t max_drafts, std::int32_t& new_tokens,
                       std::vector<double>& chances) = 0;
  /// Records that the first `num_right` of `num_drafts` drafts of the sequence were right.
  virtual void on_result(SequenceId /*sequence*/, std::int32_t /*num_drafts*/, std::int32_t /*num_right*/) {}
  /// Call when `child` begins as a copy of `parent`.
  virtual void on_fork(SequenceId /*parent*/, SequenceId /*child*/) {}
  /// Call when the sequence has left its group.
  virtual void erase(SequenceId /*sequence*/) {}

  /// Writes the state that does not follow from the request.
  virtual void save(Encoder& /*out*/) const {}
  /// Restores a saved state. The proposer must be new. Returns false if the bytes are no such state.
  virtual bool load(Decoder& /*in*/) { return true; }
};

}  // namespace pagoda::scheduling

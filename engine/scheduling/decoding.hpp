#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "engine/request/request_spec.hpp"
#include "engine/scheduling/constraint.hpp"
#include "engine/scheduling/proposer.hpp"
#include "engine/scheduling/scheduler_config.hpp"
#include "engine/step/codec.hpp"
#include "engine/step/outputs.hpp"
#include "engine/step/result.hpp"
#include "engine/types.hpp"

namespace pagoda::scheduling {

class OutputHistory;
struct Sequence;
struct SequenceGroup;

/// The operations of a strategy on the sequences of its group. The scheduler implements them.
class GroupEffects {
 public:
  /// Returns a new sequence with the parent's tokens and, if the parent holds KV, its blocks. The new sequence has no
  /// row.
  virtual Sequence fork_of(const Sequence& parent, const SequenceGroup& group) = 0;
  /// Records that the sequence has new tokens, or more computed tokens, which the block manager must receive.
  virtual void mark_dirty(const Sequence& sequence) = 0;
  /// Releases the row and the blocks of a sequence that leaves the group.
  virtual void drop(Sequence& sequence) = 0;
  /// Ends the sequence. The object stays in the group.
  virtual void finish(SequenceGroup& group, Sequence& sequence) = 0;
  virtual void emit(SequenceOutput&& output) = 0;
  /// Adds to the counter of generated tokens.
  virtual void count_generated(std::int64_t num_tokens) = 0;

 protected:
  ~GroupEffects() = default;
};

/// The strategy of a sequence group: it decides which tokens may run, and applies their results. Each group has one
/// object, of the kind that its request asks for. The scheduler decides when and where the tokens run. A Decoding owns
/// the Constraint and the Proposer of its group.
class Decoding {
 public:
  /// `constraint`: null = its samples need no masks. `proposer`: null = its sequences have no drafts.
  Decoding(std::unique_ptr<Constraint> constraint, std::unique_ptr<Proposer> proposer)
      : proposer_(std::move(proposer)), constraint_(std::move(constraint)) {}
  virtual ~Decoding() = default;
  Decoding(const Decoding&) = delete;
  Decoding& operator=(const Decoding&) = delete;

  Constraint* constraint() const { return constraint_.get(); }
  Proposer* proposer() const { return proposer_.get(); }

  /// Sets the sequences that a new group begins with, as far as the request had progress before.
  virtual void begin(SequenceGroup& group) const = 0;
  /// Returns whether a step of the group may be planned before the sample of its last step is known.
  virtual bool may_plan_ahead(const SequenceGroup& group) const = 0;
  /// Returns the number of samples to draw when a sequence has run all its tokens.
  virtual std::int32_t num_samples_at_end(const SequenceGroup& group) const = 0;
  /// Returns whether each sequence is admitted, preempted and resumed by itself; false = all of the group together.
  virtual bool has_independent_sequences() const = 0;
  /// Returns the number of batch rows that an admission of the group needs: for one sequence, or for all that it may
  /// grow to.
  virtual std::int32_t num_rows(const SequenceGroup& group) const = 0;
  /// Returns whether the scheduler sends rows their tokens (ForcedToken); false = rows continue with their own samples.
  virtual bool chooses_tokens() const = 0;

  /// Takes a result of the sequence at `index`. `samples` are those at its end; empty if the step did not reach its
  /// end. Returns true when the group has ended and all its outputs are emitted.
  virtual bool on_result(SequenceGroup& group, std::size_t index, std::span<const TokenReport> samples,
                         GroupEffects& effects) = 0;
  /// Call when the KV of sequences of the group is lost: of one sequence if they are independent, else of all. Adds the
  /// ids of sequences that end by this to `gone`. An independent sequence still takes results of steps in flight
  /// afterwards.
  virtual void on_kv_lost(SequenceGroup& group, std::vector<SequenceId>& gone) = 0;
  /// Call when there is no memory for the next tokens of the sequence at `index`, and never will be: the sequence ends
  /// with its present tokens. If sequences are not independent, the group ends. Returns true when the group has ended
  /// and all its outputs are emitted.
  virtual bool cut(SequenceGroup& group, std::size_t index, GroupEffects& effects) = 0;

  /// Call when `child` begins as a copy of `parent`.
  void on_fork(SequenceId parent, SequenceId child);
  /// Call when the sequence has ended. The object may stay in the group.
  void on_end(SequenceId sequence);
  /// Call when the sequence has left the group.
  void erase(SequenceId sequence);

  /// Writes the state that follows neither from the request nor from the group.
  void save(Encoder& out) const;
  /// Restores a saved state. The strategy must be new and of the same request, and `group` must be loaded. Returns
  /// false if the two do not fit.
  bool load(Decoder& in, const SequenceGroup& group);

 private:
  /// Write and restore the state without that of the constraint and of the proposer.
  virtual void save_strategy(Encoder& out) const = 0;
  virtual bool load_strategy(Decoder& in, const SequenceGroup& group) = 0;

  std::unique_ptr<Proposer> proposer_;
  std::unique_ptr<Constraint> constraint_;  ///< may refer to the proposer
};

/// Returns the strategy of a request. `history` must outlive it.
std::unique_ptr<Decoding> make_decoding(const SharedSpec& spec, const SchedulerConfig& config,
                                        const OutputHistory& history);

/// Return the strategies. Each is in a file of its own.
std::unique_ptr<Decoding> make_sampling(const SharedSpec& spec, const SchedulerConfig& config,
                                        const OutputHistory& history);
std::unique_ptr<Decoding> make_beam_search(const SharedSpec& spec, const SchedulerConfig& config);

/// Gives a new group the tokens of its request's progress, as if the group had been preempted.
void restore_sequences(SequenceGroup& group);

/// Returns the end of a sequence with finish reason length, without another token.
SequenceOutput length_end(RequestId request, std::int32_t sequence_index);

}  // namespace pagoda::scheduling

#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "engine/request/request_spec.hpp"
#include "engine/step/codec.hpp"
#include "engine/step/outputs.hpp"
#include "engine/step/result.hpp"
#include "engine/types.hpp"

namespace pagoda::scheduling {

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
  virtual void emit(SequenceOutput output) = 0;
  /// Adds to the counter of generated tokens.
  virtual void count_generated(std::int64_t num_tokens) = 0;

 protected:
  ~GroupEffects() = default;
};

/// The strategy of a sequence group: it decides which tokens may run, and applies their results. Each group has one
/// object, of the kind that its request asks for. The scheduler decides when and where the tokens run.
class Decoding {
 public:
  virtual ~Decoding() = default;

  /// Returns whether a step of the group may be planned before the result of its last step is known.
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

  /// Writes the state that follows neither from the request nor from the group.
  virtual void save(Encoder& out) const = 0;
  /// Restores a saved state. The strategy must be new and of the same request, and `group` must be loaded. Returns
  /// false if the two do not fit.
  virtual bool load(Decoder& in, const SequenceGroup& group) = 0;
};

/// Returns the strategy of a request.
std::unique_ptr<Decoding> make_decoding(const RequestSpec& spec, std::span<const TokenId> eos_token_ids);

/// Return the strategies. Each is in a file of its own.
std::unique_ptr<Decoding> make_sampling(const RequestSpec& spec, std::span<const TokenId> eos_token_ids);
std::unique_ptr<Decoding> make_beam_search(const RequestSpec& spec, std::span<const TokenId> eos_token_ids);

/// Returns the end of a sequence with finish reason length, without another token.
SequenceOutput length_end(RequestId request, std::int32_t sequence_index);

}  // namespace pagoda::scheduling

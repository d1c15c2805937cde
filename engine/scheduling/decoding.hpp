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

/// What a strategy may do to the sequences of its group; the scheduler carries it out.
class GroupEffects {
 public:
  /// Makes a sequence with the parent's tokens and, where that holds KV, its blocks. It has no row yet.
  virtual Sequence fork_of(const Sequence& parent, const SequenceGroup& group) = 0;
  /// The sequence has new tokens, or more that are computed, for the block manager to hear of.
  virtual void mark_dirty(const Sequence& sequence) = 0;
  /// The sequence is no longer one of the group's: it gives back what it holds.
  virtual void drop(Sequence& sequence) = 0;
  /// It runs no more; the caller still has it.
  virtual void finish(SequenceGroup& group, Sequence& sequence) = 0;
  virtual void emit(SequenceOutput output) = 0;
  /// So many tokens were generated; for the counters.
  virtual void generated(std::int64_t num_tokens) = 0;

 protected:
  ~GroupEffects() = default;
};

/// What a sequence group does with its results: one object per group, of the kind that its request asks for. It says
/// what may run and what results mean; when and where things run is the scheduler's.
class Decoding {
 public:
  virtual ~Decoding() = default;

  /// Whether a step of the group may be planned before the result of the last one is known.
  virtual bool wants_jump_forward(const SequenceGroup& group) const = 0;
  /// Samples to draw when a sequence has run all its tokens.
  virtual std::int32_t num_samples_at_end(const SequenceGroup& group) const = 0;
  /// Whether each sequence is admitted, preempted and resumed by itself; else all of the group are together.
  virtual bool has_independent_sequences() const = 0;
  /// Batch rows that the group must have to be admitted: for a sequence that comes in, or for all that may come of it.
  virtual std::int32_t num_rows(const SequenceGroup& group) const = 0;
  /// Whether rows are told their tokens (ForcedToken) rather than to go on with what they sample.
  virtual bool chooses_tokens() const = 0;

  /// The sequence at `index` has run; `samples` are of its end, none where it has not reached that. True when the group
  /// has ended and everything of it is told.
  virtual bool on_result(SequenceGroup& group, std::size_t index, std::span<const TokenReport> samples,
                         GroupEffects& effects) = 0;
  /// The KV of sequences of the group is gone: of one that is independent, or of all. The ids of sequences that end
  /// with it are added to `gone`. Where sequences are independent, a result counts for a sequence whose KV is gone.
  virtual void on_kv_lost(SequenceGroup& group, std::vector<SequenceId>& gone) = 0;
  /// There is no memory for the next tokens of the sequence at `index`, nor will be: it ends with what it has; where
  /// sequences are not independent, the group does. True when the group has ended and everything of it is told.
  virtual bool cut(SequenceGroup& group, std::size_t index, GroupEffects& effects) = 0;

  /// What it knows beside the request and its group.
  virtual void save(Encoder& out) const = 0;
  /// Of a new strategy for the same request, whose group is loaded already. False when the two do not fit.
  virtual bool load(Decoder& in, const SequenceGroup& group) = 0;
};

/// The strategy of a request.
std::unique_ptr<Decoding> make_decoding(const RequestSpec& spec, std::span<const TokenId> eos_token_ids);

/// The strategies, each in a file of its own.
std::unique_ptr<Decoding> make_sampling(const RequestSpec& spec, std::span<const TokenId> eos_token_ids);
std::unique_ptr<Decoding> make_beam_search(const RequestSpec& spec, std::span<const TokenId> eos_token_ids);

/// The end of a sequence as it is, without another token.
SequenceOutput length_end(RequestId request, std::int32_t sequence_index);

}  // namespace pagoda::scheduling

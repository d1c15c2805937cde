#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "engine/request/request_spec.hpp"
#include "engine/request/thinking_budget.hpp"
#include "engine/scheduling/mask_proposer.hpp"
#include "engine/scheduling/request_masks.hpp"
#include "engine/scheduling/scheduler_config.hpp"
#include "engine/step/codec.hpp"
#include "engine/step/execute.hpp"
#include "engine/types.hpp"

namespace pagoda::scheduling {

struct Sequence;
struct SequenceGroup;

/// Restricts the tokens that the sequences of a group may sample: by a grammar, and by a thinking budget. Knows for
/// each sequence whether its next sample needs a mask, which mask is requested, and which is made. Writes jobs for
/// masks, which threads run elsewhere, and sets the tokens that follow from made masks. The group's Decoding owns its
/// Constraint. Not thread-safe.
class Constraint {
 public:
  /// `proposer` takes the drafts that mask jobs find, and must outlive this object; null = jobs look for none.
  Constraint(const SharedSpec& spec, const SchedulerConfig& config, MaskProposer* proposer);
  /// Jobs of the group that wait need not run any more.
  ~Constraint();
  Constraint(const Constraint&) = delete;
  Constraint& operator=(const Constraint&) = delete;

  /// Sets the grammar of a spec that was read from bytes. Call before any other function.
  void set_grammar(const SharedSpec& spec, const SchedulerConfig& config);

  /// Returns whether the sample behind all tokens of the sequence needs a mask, which is made when these tokens are
  /// known.
  bool wants_mask(const Sequence& sequence);
  /// Returns whether the mask of the sample behind all of the sequence's output is made.
  bool has_mask(const Sequence& sequence) const { return made_mask(sequence) != nullptr; }
  /// Returns that mask; null if it is not made.
  const MadeMask* made_mask(const Sequence& sequence) const;
  /// Returns whether a job for that mask would be of use: none makes it, and the grammar is known.
  bool may_request_mask(const Sequence& sequence) const;

  /// Returns a job for that mask, and counts the mask as requested. The job looks for at most `max_drafts` drafts.
  /// Returns nothing if the grammar is not known.
  std::optional<MaskJob> mask_job(const SequenceGroup& group, const Sequence& sequence, std::int32_t max_drafts);
  /// Takes the result of a job. Ignores it if the tokens of the sequence have changed since. Returns whether the
  /// sequence awaited this mask to run again.
  bool take_made(Sequence& sequence, MadeMask made);
  /// Adds the made mask of the sequence, which is at index `work` of its step, and removes it from here. With drafts
  /// this is one mask for each position. Sets the tokens that follow from the mask, and returns the number of those
  /// that are certain.
  std::int64_t apply_mask(std::int32_t work, Sequence& sequence, StepMasks& masks);

  /// Call when other tokens have replaced the output of the sequence. Results of jobs for the old tokens are ignored.
  void on_output_replaced(Sequence& sequence);
  /// Call when `child` begins as a copy of `parent`.
  void on_fork(SequenceId parent, SequenceId child);
  /// Call when the sequence has ended and needs no more masks. The next job of the group reports this.
  void on_end(SequenceId sequence);
  /// Call when the sequence has left its group.
  void erase(SequenceId sequence) { sequences_.erase(sequence); }

  /// Writes all state except for the words of masks and the state of masks that are being made.
  void save(Encoder& out) const;
  /// Restores a saved state. The constraint must be new. Returns false if the bytes are no such state.
  bool load(Decoder& in) { return in.get(sequences_); }

 private:
  struct MaskState {
    std::int32_t course = 0;               ///< raised when tokens of the output are replaced; otherwise it only grows
    std::optional<MadeMask> made;          ///< mask of the next sample
    ThinkingProgress thinking;             ///< progress in the output
    SequenceId parent = 0;                 ///< sequence that it was forked from; for RequestMasks, as the next two
    std::size_t num_followed = 0;          ///< number of tokens of the output that MaskJobs have brought
    std::optional<std::size_t> requested;  ///< set while a job makes the mask behind this many tokens

    static constexpr auto visit_fields(auto& self, auto&& visit) { return visit(self.course, self.made); }
  };

  const MaskState* find(SequenceId sequence) const;

  bool has_grammar_ = false;    ///< whether each sample needs a mask
  bool jumps_forward_ = false;  ///< whether certain tokens need not be sampled
  std::size_t num_words_ = 0;   ///< number of words of a mask
  MaskProposer* const proposer_;
  std::optional<ThinkingBudget> thinking_;
  /// Null if the grammar is not known, as in replays.
  std::shared_ptr<RequestMasks> masks_;
  std::vector<SequenceId> ended_;  ///< sequences to report as ended with the next job
  std::map<SequenceId, MaskState> sequences_;
};

/// Returns whether samples of a request may need masks, so that it has a Constraint.
bool is_constrained(const RequestSpec& spec, const SchedulerConfig& config);
/// Returns the constraint of a request; null if its samples need no masks.
std::unique_ptr<Constraint> make_constraint(const SharedSpec& spec, const SchedulerConfig& config,
                                            MaskProposer* proposer);

}  // namespace pagoda::scheduling

#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "engine/memory/block_space_manager.hpp"
#include "engine/memory/sequence_store.hpp"

namespace pagoda::memory {

/// The rules of a step: who runs, who gives way, who comes in. Reads from top to bottom as the steps of run().
///
/// Running groups are served in their order. When blocks lack, the last group that is not served yet is preempted; when
/// there is none, the group itself. Served groups never give way, so nothing has to be taken back.
///
/// Nothing comes in while groups had to go out. Admission leaves the watermark free, except when nobody holds a block:
/// then whatever fits the pool at all is admitted, so there is always progress.
///
/// A prompt that runs in chunks fetches the blocks of each chunk when it runs, but the blocks of the whole prompt must
/// be there when it is admitted, and stay reserved: no later admission or swap-in takes them. So prompts in progress
/// cannot block one another, while the reserved blocks go on serving prefix hits, and the slots of chunks to come are
/// not counted as used up. Running groups may eat into the reserve, they have priority and preempt if it comes to that.
class StepPlanner {
 public:
  StepPlanner(SequenceStore& store, const PlanStep& request, PlannedStep& result);
  void run();

  std::int64_t prefix_tokens_asked() const { return prefix_tokens_asked_; }
  std::int64_t prefix_tokens_found() const { return prefix_tokens_found_; }

 private:
  void serve_running();
  RunningOutcome serve(std::size_t index);
  /// Blocks will leave the sliding window when the steps in flight are reported.
  bool waits_for_its_window() const;
  /// Preempts groups behind `index`, from the back, until `num_blocks` are available. False when that is not enough.
  bool make_room(std::size_t index, std::int32_t num_blocks);
  RunningOutcome preempt(const RunningCandidate& victim);
  bool swap_is_cheaper(const Group& group);

  void serve_swapped();
  AllocStatus swap_in(const SwapInCandidate& candidate);

  void serve_waiting();
  AdmissionOutcome admit(const AdmissionCandidate& candidate);
  /// Tokens to run now of a prompt that has `uncached` to compute; 0 when the budget has no place.
  std::int32_t first_chunk(const AdmissionCandidate& candidate, std::int32_t uncached) const;

  void collect_rows(Range range);
  void run_rows();
  void emit_table_delta(Sequence& sequence);
  /// Blocks that may be taken by groups that come in.
  std::int32_t room_for_newcomers() const;

  SequenceStore& store_;
  const PlanStep& request_;
  StepPlan& plan_;
  std::int32_t tokens_left_;
  std::size_t num_kept_;  ///< running candidates from here on were preempted
  bool preempted_any_ = false;
  std::vector<Growth> rows_;
  PrefixHit hit_;
  std::int64_t prefix_tokens_asked_ = 0;
  std::int64_t prefix_tokens_found_ = 0;
};

}  // namespace pagoda::memory

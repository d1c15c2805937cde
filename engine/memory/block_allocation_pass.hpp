#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "engine/memory/block_space_manager.hpp"
#include "engine/memory/sequence_store.hpp"

namespace pagoda::memory {

/// The rules of a step: who runs, who gives way, who comes in. Reads from top to bottom as the steps of run().
///
/// Running candidates are served in their order. When blocks lack, the last candidate that is not served yet is
/// preempted; when there is none, the candidate itself. Served candidates never give way, so nothing has to be taken
/// back.
///
/// Where the scheduler says so, the last running candidates give their batch rows or their memory to the head of those
/// that want to come in: to the first swapped or waiting candidate. The head comes in with a later plan.
///
/// Swapped and waiting candidates come in, in one order, up to the first that finds no room. Nothing comes in while
/// others had to go out. Admission leaves the watermark free, except when no sequence holds a block: then whatever fits
/// the pool at all is admitted, so there is always progress.
///
/// A prompt that runs in chunks fetches the blocks of each chunk when it runs, but the blocks of the whole prompt must
/// be there when it is admitted, and stay reserved: no later admission or swap-in takes them. So prompts in progress
/// cannot block one another, while the reserved blocks go on serving prefix hits, and the slots of chunks to come are
/// not counted as used up. Running groups may eat into the reserve, they have priority and preempt if it comes to that.
class BlockAllocationPass {
 public:
  BlockAllocationPass(SequenceStore& store, const MemoryRequest& request, GrantedStep& result);
  void run();

  std::int64_t prefix_tokens_asked() const { return prefix_tokens_asked_; }
  std::int64_t prefix_tokens_found() const { return prefix_tokens_found_; }

 private:
  /// Serves the running candidates [first, end) that were not preempted.
  void serve_running(std::size_t first, std::size_t end);
  RunningOutcome serve(std::size_t index);
  /// Blocks will leave the sliding window when the steps in flight are reported.
  bool waits_for_its_window() const;
  /// Blocks that the rows of a group would have to fetch if it shared its blocks with no other group.
  std::int32_t count_missing_alone(const Group& group);
  /// Preempts candidates behind `index`, from the back, until the rows find the blocks that they miss. False when that
  /// is not enough.
  bool make_room(std::size_t index);
  RunningOutcome preempt(const RunningCandidate& victim);
  void preempt_last();
  Group& group_of(const RunningCandidate& candidate);
  bool swap_is_cheaper(const Group& group);
  /// Preempts candidates from `first` on, from the back, while the head lacks memory and they hold as much.
  void make_way_for_head(std::size_t first);
  /// Blocks that the head lacks to come in now; 0 when it lacks none, or something else.
  std::int32_t num_blocks_head_lacks();

  /// What keeps a candidate out, or lets it in.
  struct Entry {
    AllocStatus status = AllocStatus::later;
    std::int32_t num_blocks_lacking = 0;  ///< of `later`: 0 = memory is not what it waits for
    bool is_passed_over = false;          ///< see AdmissionOutcome
  };
  void serve_incoming();
  Entry find_room(const SwapInCandidate& candidate);
  AllocStatus swap_in(const SwapInCandidate& candidate);

  /// Serves waiting candidates from `next` to `end`. False when one finds no room.
  bool serve_waiting(std::size_t& next, std::size_t end);
  /// Looks up what of the candidate's prompt is cached, and what it takes to admit it.
  Entry find_room(const AdmissionCandidate& candidate);
  AdmissionOutcome admit(const AdmissionCandidate& candidate);
  /// Tokens to run now of a prompt that has `uncached` to compute; 0 when the budget has no place.
  std::int32_t first_chunk(const AdmissionCandidate& candidate, std::int32_t uncached) const;

  void collect_rows(Range range);
  void run_rows();
  void emit_table_delta(Sequence& sequence);
  /// Blocks that may be taken by groups that come in.
  std::int32_t blocks_available_for_admission() const;

  SequenceStore& store_;
  const MemoryRequest& request_;
  MemoryGrant& plan_;
  std::int32_t tokens_left_;
  std::int32_t partial_long_prompts_left_;
  std::size_t num_kept_;  ///< running candidates from here on were preempted
  bool preempted_any_ = false;
  std::vector<Growth> rows_;
  // What find_room() has found for the waiting candidate.
  PrefixHit hit_;
  std::int32_t chunk_ = 0;        ///< tokens to run now
  std::int32_t num_fetched_ = 0;  ///< blocks to fetch or reserve
  bool is_partial_long_ = false;  ///< it begins a long prompt in chunks
  std::int64_t prefix_tokens_asked_ = 0;
  std::int64_t prefix_tokens_found_ = 0;
};

}  // namespace pagoda::memory

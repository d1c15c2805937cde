#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "engine/memory/block_space_manager.hpp"
#include "engine/memory/sequence_store.hpp"

namespace pagoda::memory {

/// The rules of a step: which sequences run, which give way, which are admitted. The functions come in the order in
/// which run() uses them.
///
/// Running candidates are served in their order. When blocks are missing, the last candidate that is not served yet is
/// preempted; if there is no other, the candidate itself is preempted. Served candidates never give way, so no decision
/// has to be undone.
///
/// If the request asks for it, the last running candidates give their batch rows or their memory to the head: the first
/// swapped or waiting candidate. The head is admitted by a later plan.
///
/// Swapped and waiting candidates are admitted, in one order, up to the first that finds no room. None is admitted in a
/// step that preempts. Admission leaves the watermark free, except when no sequence holds a block: then every candidate
/// that fits the pool is admitted, so there is always progress.
///
/// A prompt that runs in chunks fetches the blocks of each chunk when the chunk runs. But the blocks of the whole
/// prompt must be available at admission, and stay reserved: no later admission or swap-in takes them. So prompts in
/// progress cannot block one another. Meanwhile the reserved blocks still serve prefix hits, and the slots of later
/// chunks do not count as used. Running groups may use reserved blocks: they have priority, and preempt if blocks are
/// missing.
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
  /// Returns whether blocks will leave a sliding window when the results of steps in flight are reported.
  bool waits_for_its_window() const;
  /// Returns the number of blocks that the rows of a group would have to fetch if the group shared no block with
  /// another.
  std::int32_t count_missing_alone(const Group& group);
  /// Preempts candidates behind `index`, from the back, until the blocks that the rows miss are available. Returns
  /// whether they are.
  bool make_room(std::size_t index);
  RunningOutcome preempt(const RunningCandidate& victim);
  void preempt_last();
  Group& group_of(const RunningCandidate& candidate);
  bool swap_is_cheaper(const Group& group);
  /// Preempts candidates from `first` on, from the back, while the head lacks memory. Preempts none if all of them hold
  /// fewer blocks than the head lacks.
  void make_way_for_head(std::size_t first);
  /// Returns the number of blocks that the head lacks to be admitted; 0 if it lacks none, or waits for something else.
  std::int32_t num_blocks_head_lacks();

  /// Whether a candidate can be admitted, and the reason if not.
  struct Entry {
    AllocStatus status = AllocStatus::later;
    std::int32_t num_blocks_lacking = 0;  ///< for `later`: number of missing blocks; 0 = it does not wait for memory
    bool is_passed_over = false;          ///< see AdmissionOutcome
  };
  void serve_incoming();
  Entry find_room(const SwapInCandidate& candidate);
  AllocStatus swap_in(const SwapInCandidate& candidate);

  /// Serves waiting candidates from `next` to `end`. Returns false if one of them finds no room.
  bool serve_waiting(std::size_t& next, std::size_t end);
  /// Looks up the cached part of the candidate's prompt, and counts the blocks that its admission takes.
  Entry find_room(const AdmissionCandidate& candidate);
  AdmissionOutcome admit(const AdmissionCandidate& candidate);
  /// Returns the number of tokens to run now of a prompt with `uncached` tokens to compute; 0 if the budget has no
  /// room.
  std::int32_t first_chunk(const AdmissionCandidate& candidate, std::int32_t uncached) const;

  void collect_rows(Range range);
  void run_rows();
  void emit_table_deltas(Sequence& sequence);
  /// Returns the number of blocks that admissions may take.
  std::int32_t blocks_available_for_admission() const;

  SequenceStore& store_;
  const MemoryRequest& request_;
  MemoryGrant& grant_;
  std::int32_t tokens_left_;
  std::int32_t partial_long_prompts_left_;
  std::size_t num_kept_;  ///< index of the first running candidate that was preempted
  bool preempted_any_ = false;
  std::vector<Growth> rows_;
  // Results of the last find_room() for a waiting candidate.
  PrefixHit hit_;
  std::int32_t chunk_ = 0;                 ///< number of tokens to run now
  std::vector<std::int32_t> num_fetched_;  ///< number of blocks to fetch or reserve, by KV group
  bool is_partial_long_ = false;           ///< whether it is a long prompt that begins in chunks
  std::int64_t prefix_tokens_asked_ = 0;
  std::int64_t prefix_tokens_found_ = 0;
};

}  // namespace pagoda::memory

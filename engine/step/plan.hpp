#pragma once

/// Messages 3 to 5 of a step, between scheduler, block manager and cache engines (docs/architecture/step.md).
/// Lists of lists are flattened (a group's sequences are a range of one shared vector) so that a plan of 256 rows costs
/// a handful of allocations.
///
/// A token is `scheduled` when it was planned into a step, and `computed` when that step has succeeded. Every message
/// names its fields once, in visit_fields, for the codec (codec.hpp).

#include <cstdint>
#include <string>
#include <vector>

#include "engine/types.hpp"

namespace pagoda {

/// A range of a flattened vector.
struct Range {
  std::int32_t first = 0;
  std::int32_t count = 0;

  static constexpr auto visit_fields(auto& self, auto&& visit) { return visit(self.first, self.count); }
};

enum class PreemptionMode : std::uint8_t {
  recompute,
  swap,
  cheaper,  ///< whichever MemoryRequest::costs says takes less time for this group, now that it is known who holds its
            ///< blocks
};
constexpr PreemptionMode last_value(PreemptionMode) {
  return PreemptionMode::cheaper;
}

/// What bringing a preempted group back takes.
struct PreemptionCosts {
  double recompute_us_per_token = 0;
  double swap_us_per_block = 0;  ///< out and in again

  static constexpr auto visit_fields(auto& self, auto&& visit) {
    return visit(self.recompute_us_per_token, self.swap_us_per_block);
  }
};

/// What a sequence needs in the step: its KV must cover `num_scheduled_tokens + num_new_tokens + num_lookahead_slots`
/// tokens afterwards.
struct SequenceNeed {
  SequenceId sequence = 0;
  std::int32_t num_scheduled_tokens = 0;  ///< of steps before this one; computed, or to be by a step in flight
  std::int32_t num_new_tokens = 0;        ///< tokens to run in this step; 0 = it sits out, and nothing is done for it
  std::int32_t num_lookahead_slots = 0;   ///< further slots to reserve beyond the new tokens

  static constexpr auto visit_fields(auto& self, auto&& visit) {
    return visit(self.sequence, self.num_scheduled_tokens, self.num_new_tokens, self.num_lookahead_slots);
  }
};

/// Sequences that run now and lose their memory together: one sampled sequence, or all of a beam search. Candidates
/// come in priority order; victims are taken from the back.
struct RunningCandidate {
  RequestId group = 0;
  Range sequences;  ///< of MemoryRequest::needs; all that share the candidate's fate
  PreemptionMode preemption = PreemptionMode::recompute;  ///< how to preempt them if they are chosen as victims

  static constexpr auto visit_fields(auto& self, auto&& visit) {
    return visit(self.group, self.sequences, self.preemption);
  }
};

/// Swapped-out sequences that want to come back, and to run in this step.
struct SwapInCandidate {
  RequestId group = 0;
  Range sequences;                      ///< of MemoryRequest::needs
  std::int32_t num_waiting_before = 0;  ///< waiting candidates that are served before it

  static constexpr auto visit_fields(auto& self, auto&& visit) {
    return visit(self.group, self.sequences, self.num_waiting_before);
  }
};

/// A waiting sequence. It holds nothing on the device. `tokens` is all it must compute: the prompt, and after a
/// recompute preemption also what it had generated.
struct AdmissionCandidate {
  RequestId group = 0;
  SequenceId sequence = 0;
  SharedTokens tokens;
  std::uint64_t adapter = 0;  ///< 0 = the base model
  std::string cache_salt;
  bool may_chunk = false;        ///< it may start with a part of its tokens when the budget does not hold them all
  bool use_prefix_cache = true;  ///< false: every token must be computed (prompt_logprobs)
  std::int32_t max_chunk = 0;    ///< with may_chunk: most tokens that it starts with; 0 = as many as the budget has

  static constexpr auto visit_fields(auto& self, auto&& visit) {
    return visit(self.group, self.sequence, self.tokens, self.adapter, self.cache_salt, self.may_chunk,
                 self.use_prefix_cache, self.max_chunk);
  }
};

/// The child shares every block of the parent from now on. It has the tokens that the parent was known to have before
/// this plan: forks come before `sampled`, so each of the two gets its own next token there.
struct Fork {
  SequenceId parent = 0;
  SequenceId child = 0;
  bool is_independent = false;  ///< the child is preempted and swapped by itself, not together with its parent

  static constexpr auto visit_fields(auto& self, auto&& visit) {
    return visit(self.parent, self.child, self.is_independent);
  }
};

/// A token sampled since the last plan; appended to what the block manager knows of the sequence, in order. Needed to
/// hash blocks of generated tokens. Sequences that the block manager does not hold (any more) are ignored, here and in
/// SequenceProgress: the scheduler may learn of a preemption after it has queued them.
struct SampledToken {
  SequenceId sequence = 0;
  TokenId token = 0;

  static constexpr auto visit_fields(auto& self, auto&& visit) { return visit(self.sequence, self.token); }
};

/// The KV of the first `num_computed_tokens` tokens of the sequence has really been computed: every step that wrote it
/// has succeeded. Full blocks of generated tokens below become shareable (those of its prompt are since they were
/// scheduled), blocks of equal content become one, and blocks that have left the sliding window are given back.
struct SequenceProgress {
  SequenceId sequence = 0;
  std::int32_t num_computed_tokens = 0;

  static constexpr auto visit_fields(auto& self, auto&& visit) {
    return visit(self.sequence, self.num_computed_tokens);
  }
};

/// Message 3, scheduler -> block manager. Applied in the order of the fields: what happened since the last plan, then
/// running, swapped and waiting candidates in their order under the budgets. Sequences that the block manager does not
/// know are passed over in `forks` (as parent), `sampled`, `progress` and `releases`: they were preempted by recompute,
/// or released. All results of a sequence are reported before it is admitted again, or in the same plan.
///
/// Sequences that hold blocks and are in none of the lists keep them. Batch rows are the scheduler's own to count.
/// Swapped and waiting candidates are served in one order (SwapInCandidate::num_waiting_before), up to the first that
/// is answered `later`. Of the waiting only as many should be offered as could start, were their prompts cached: the
/// answer has an entry for each.
struct MemoryRequest {
  StepId step = 0;
  StepId last_completed_step = 0;  ///< every step up to here has passed on the device
  /// The steps from here on that were planned before did not compute what they were to (they failed, their worker died,
  /// or rows of theirs were left out); 0 = none. Blocks that only they compute are not found any more. Whoever was
  /// admitted with such blocks (AdmissionOutcome::awaits_step) is in `releases`.
  StepId first_failed_step = 0;
  /// The device's memory was made anew since the last plan, and the host pool with it: no block holds anything, nothing
  /// is found, every sequence is forgotten. Comes with first_failed_step; `releases` may name what is forgotten anyway.
  bool device_memory_lost = false;
  /// No block that was computed before this plan is found any more. Who holds blocks keeps them.
  bool forget_prefixes = false;
  std::int32_t token_budget = 0;  ///< tokens that the step may run in all
  /// The last so many running candidates are preempted: a more urgent request needs their batch rows.
  std::int32_t num_preempted_for_rows = 0;
  /// The last so many running candidates give way, from the back, while the first swapped or waiting candidate lacks
  /// memory: it is more urgent than they are.
  std::int32_t num_giving_way = 0;
  /// Prompts of which more tokens are left to compute are long: at most max_partial_long_prompts of those admitted
  /// begin in chunks, others are passed over. 0 = no prompt is long.
  std::int32_t long_prompt_tokens = 0;
  std::int32_t max_partial_long_prompts = 0;
  PreemptionCosts costs;

  std::vector<Fork> forks;
  std::vector<SampledToken> sampled;
  std::vector<SequenceProgress> progress;
  std::vector<SequenceId> releases;  ///< forget them, in whatever state they are; unknown ids are ignored
  std::vector<RunningCandidate> running;
  std::vector<SwapInCandidate> swapped;
  std::vector<AdmissionCandidate> waiting;
  std::vector<SequenceNeed> needs;  ///< ranges of running and swapped candidates

  static constexpr auto visit_fields(auto& self, auto&& visit) {
    return visit(self.step, self.last_completed_step, self.first_failed_step, self.device_memory_lost,
                 self.forget_prefixes, self.token_budget, self.num_preempted_for_rows, self.num_giving_way,
                 self.long_prompt_tokens, self.max_partial_long_prompts, self.costs, self.forks, self.sampled,
                 self.progress, self.releases, self.running, self.swapped, self.waiting, self.needs);
  }
};

/// OK: served in this step. LATER: cannot be served now, may be later. NEVER: does not fit even in an empty pool. A
/// swapped-out candidate that is answered NEVER keeps its host blocks until it is released: it has outgrown the pool,
/// or blocks that it had left on the device with others are not there any more, so that it must be recomputed. A
/// sequence that was recomputed and has outgrown the pool meanwhile is answered NEVER too.
enum class AllocStatus : std::uint8_t { ok, later, never };
constexpr AllocStatus last_value(AllocStatus) {
  return AllocStatus::never;
}

enum class RunningOutcome : std::uint8_t {
  scheduled,            ///< runs in this step
  skipped,              ///< keeps its blocks but does not run (token budget used up, or its window still has to move)
  preempted_recompute,  ///< its blocks are gone; it must be admitted again with all its tokens
  preempted_swap,       ///< its blocks are in the host pool after this step's CachePlan
  never,                ///< does not fit even an empty pool: its blocks are gone
};
constexpr RunningOutcome last_value(RunningOutcome) {
  return RunningOutcome::never;
}

struct AdmissionOutcome {
  AllocStatus status = AllocStatus::later;
  std::int32_t num_cached_tokens = 0;  ///< tokens served by the prefix cache; computing starts behind them
  std::int32_t num_new_tokens = 0;     ///< tokens to run in this step
  /// The last step that computes any of the cached tokens and has not passed yet, possibly the planned one; 0 = all are
  /// computed. If it, or a step before it that is still in flight, fails, they are not there.
  StepId awaits_step = 0;
  bool is_passed_over = false;  ///< `later`, as a long prompt, and those behind it were served

  static constexpr auto visit_fields(auto& self, auto&& visit) {
    return visit(self.status, self.num_cached_tokens, self.num_new_tokens, self.awaits_step, self.is_passed_over);
  }
};

/// A part of a sequence's block table that changed: blocks [first_block, first_block + blocks.count).
struct TableDelta {
  SequenceId sequence = 0;
  std::int32_t first_block = 0;  ///< logical index in the table; entries from here on are replaced
  Range blocks;                  ///< of MemoryGrant::blocks
  KvGroupId kv_group = 0;        ///< whose table

  static constexpr auto visit_fields(auto& self, auto&& visit) {
    return visit(self.sequence, self.first_block, self.blocks, self.kv_group);
  }
};

struct MemoryStats {
  std::int32_t device_blocks_total = 0;
  std::int32_t device_blocks_free = 0;    ///< holds nothing
  std::int32_t device_blocks_cached = 0;  ///< owned by nobody, but content kept for the prefix cache: can be evicted
  std::int32_t host_blocks_total = 0;
  std::int32_t host_blocks_free = 0;
  std::int64_t prefix_cache_queries = 0;  ///< tokens asked for
  std::int64_t prefix_cache_hits = 0;     ///< tokens found
  std::int64_t allocated_slots = 0;       ///< token slots in blocks that sequences own
  std::int64_t used_slots = 0;            ///< of them, slots that hold or will hold a token of a scheduled step

  static constexpr auto visit_fields(auto& self, auto&& visit) {
    return visit(self.device_blocks_total, self.device_blocks_free, self.device_blocks_cached, self.host_blocks_total,
                 self.host_blocks_free, self.prefix_cache_queries, self.prefix_cache_hits, self.allocated_slots,
                 self.used_slots);
  }
};

/// Message 5, block manager -> scheduler.
struct MemoryGrant {
  StepId step = 0;
  std::vector<RunningOutcome> running;    ///< parallel to MemoryRequest::running
  std::vector<AllocStatus> swapped;       ///< parallel to MemoryRequest::swapped
  std::vector<AdmissionOutcome> waiting;  ///< parallel to MemoryRequest::waiting
  std::vector<TableDelta> table_deltas;   ///< of every sequence that runs in this step and whose table changed
  std::vector<BlockId> blocks;
  bool has_cache_plan = false;  ///< workers must wait for CacheReady of this step
  MemoryStats memory;

  static constexpr auto visit_fields(auto& self, auto&& visit) {
    return visit(self.step, self.running, self.swapped, self.waiting, self.table_deltas, self.blocks,
                 self.has_cache_plan, self.memory);
  }
};

/// One block moved between pools or within the device pool. `last_touched_step`: the last step that reads or writes
/// either block; the operation must wait for it (0 = none in flight).
struct BlockMove {
  BlockId from = 0;
  BlockId to = 0;
  StepId last_touched_step = 0;
  KvGroupId kv_group = 0;  ///< whose table names `to`

  static constexpr auto visit_fields(auto& self, auto&& visit) {
    return visit(self.from, self.to, self.last_touched_step, self.kv_group);
  }
};

/// Message 4, block manager -> cache engines. Executed in this order: swap_out, swap_in, copies. Everything finishes
/// before the compute of `step` starts.
struct CachePlan {
  StepId step = 0;
  std::vector<BlockMove> swap_out;  ///< device -> host
  std::vector<BlockMove> swap_in;   ///< host -> device
  std::vector<BlockMove> copies;    ///< device -> device (copy-on-write)

  static constexpr auto visit_fields(auto& self, auto&& visit) {
    return visit(self.step, self.swap_out, self.swap_in, self.copies);
  }
  bool empty() const { return swap_out.empty() && swap_in.empty() && copies.empty(); }
};

}  // namespace pagoda

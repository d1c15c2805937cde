#pragma once

/// The messages of one step between scheduler, block manager and cache engines (docs/architecture/step.md, messages 3
/// to 5). Lists of lists are flattened: a group's sequences are a range of one shared vector. So a plan of 256 rows
/// needs only a few allocations.
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
  /// The faster mode by MemoryRequest::costs; the block manager, which knows the owners of the blocks, decides.
  cheaper,
};
constexpr PreemptionMode last_value(PreemptionMode) {
  return PreemptionMode::cheaper;
}

/// The time that bringing back a preempted group takes.
struct PreemptionCosts {
  double recompute_us_per_token = 0;
  double swap_us_per_block = 0;  ///< for moving one block out and in again

  static constexpr auto visit_fields(auto& self, auto&& visit) {
    return visit(self.recompute_us_per_token, self.swap_us_per_block);
  }
};

/// The blocks that a sequence needs in the step: afterwards its KV must cover `num_scheduled_tokens + num_new_tokens +
/// num_lookahead_slots` tokens.
struct SequenceNeed {
  SequenceId sequence = 0;
  /// Number of tokens in steps before this one; they are computed, or a step in flight computes them.
  std::int32_t num_scheduled_tokens = 0;
  /// Number of tokens to run in this step; 0 = it does not run and gets nothing.
  std::int32_t num_new_tokens = 0;
  std::int32_t num_lookahead_slots = 0;  ///< number of further slots to reserve beyond the new tokens

  static constexpr auto visit_fields(auto& self, auto&& visit) {
    return visit(self.sequence, self.num_scheduled_tokens, self.num_new_tokens, self.num_lookahead_slots);
  }
};

/// Sequences that run and lose their memory together: one sampled sequence, or all sequences of a beam search.
/// Candidates come in priority order; victims are taken from the back.
struct RunningCandidate {
  RequestId group = 0;
  Range sequences;  ///< range of MemoryRequest::needs with all sequences of the candidate
  PreemptionMode preemption = PreemptionMode::recompute;  ///< how they are preempted if they become victims

  static constexpr auto visit_fields(auto& self, auto&& visit) {
    return visit(self.group, self.sequences, self.preemption);
  }
};

/// Swapped-out sequences that are to come back and run in this step.
struct SwapInCandidate {
  RequestId group = 0;
  Range sequences;                      ///< range of MemoryRequest::needs
  std::int32_t num_waiting_before = 0;  ///< number of waiting candidates that are served before this one

  static constexpr auto visit_fields(auto& self, auto&& visit) {
    return visit(self.group, self.sequences, self.num_waiting_before);
  }
};

/// A waiting sequence. It holds nothing on the device. `tokens` are all tokens that it must compute: the prompt, and
/// after a recompute preemption also the generated tokens.
struct AdmissionCandidate {
  RequestId group = 0;
  SequenceId sequence = 0;
  SharedTokens tokens;
  AdapterId adapter = 0;
  std::string cache_salt;
  /// Whether the sequence may start with a part of its tokens when the budget does not hold all of them.
  bool may_chunk = false;
  /// Whether cached blocks are used; false = every token must be computed (prompt_logprobs).
  bool use_prefix_cache = true;
  /// With may_chunk: maximum number of tokens of the first chunk; 0 = limited by the budget only.
  std::int32_t max_chunk = 0;

  static constexpr auto visit_fields(auto& self, auto&& visit) {
    return visit(self.group, self.sequence, self.tokens, self.adapter, self.cache_salt, self.may_chunk,
                 self.use_prefix_cache, self.max_chunk);
  }
};

/// From now on the child shares every block of the parent. It has the tokens that the parent was known to have before
/// this plan: forks are applied before `sampled`, where each of the two gets its own next token.
struct Fork {
  SequenceId parent = 0;
  SequenceId child = 0;
  /// Whether the child is preempted and swapped by itself; false = together with its parent.
  bool is_independent = false;

  static constexpr auto visit_fields(auto& self, auto&& visit) {
    return visit(self.parent, self.child, self.is_independent);
  }
};

/// A token that was sampled since the last plan. The block manager appends it to the sequence's known tokens, in order,
/// and needs it to hash blocks of generated tokens. Sequences that the block manager does not hold are ignored, here
/// and in SequenceProgress: the scheduler may have queued the token before it learned of a preemption.
struct SampledToken {
  SequenceId sequence = 0;
  TokenId token = 0;

  static constexpr auto visit_fields(auto& self, auto&& visit) { return visit(self.sequence, self.token); }
};

/// The KV of the first `num_computed_tokens` tokens of the sequence is computed: every step that wrote it has
/// succeeded. This makes full blocks of generated tokens below it shareable (prompt blocks are shareable since they
/// were scheduled), merges blocks of equal content, and frees blocks that have left the sliding window.
struct SequenceProgress {
  SequenceId sequence = 0;
  std::int32_t num_computed_tokens = 0;

  static constexpr auto visit_fields(auto& self, auto&& visit) {
    return visit(self.sequence, self.num_computed_tokens);
  }
};

/// Message 3, scheduler -> block manager. The fields are applied in their order: first the events since the last plan,
/// then running, swapped and waiting candidates in their order, within the budgets. Sequences that the block manager
/// does not know are ignored in `forks` (as parent), `sampled`, `progress` and `releases`: they were preempted by
/// recompute, or released. All results of a sequence are reported before it is admitted again, or in the same plan.
///
/// Sequences that hold blocks and are in none of the lists keep their blocks. The scheduler counts batch rows itself.
/// Swapped and waiting candidates are served in one order (SwapInCandidate::num_waiting_before), up to the first
/// candidate that is answered `later`. The scheduler should offer only as many waiting candidates as could start if
/// their prompts were cached: the answer has an entry for each of them.
struct MemoryRequest {
  StepId step = 0;
  StepId last_completed_step = 0;  ///< every step up to this one has passed on the device
  /// The planned steps from this one on did not compute their tokens: they failed, their worker died, or some of their
  /// rows were left out. 0 = none. Blocks that only these steps compute are removed from the prefix cache. `releases`
  /// contains every sequence that was admitted with such blocks (AdmissionOutcome::awaits_step).
  StepId first_failed_step = 0;
  /// Whether the device memory was created anew since the last plan, and the host pool with it. Then no block holds
  /// anything, the prefix cache is empty, and every sequence is forgotten. Comes with first_failed_step; `releases` may
  /// still name forgotten sequences.
  bool device_memory_lost = false;
  /// Whether blocks that were computed before this plan are removed from the prefix cache. Owners keep their blocks.
  bool reset_prefix_cache = false;
  std::int32_t token_budget = 0;  ///< maximum number of tokens that the step runs
  /// Number of running candidates, from the back, that are preempted because a more urgent request needs their rows.
  std::int32_t num_preempted_for_rows = 0;
  /// Number of running candidates, from the back, that give way while the first swapped or waiting candidate, which is
  /// more urgent, lacks memory.
  std::int32_t num_giving_way = 0;
  /// A prompt with more tokens left to compute than this is long. At most max_partial_long_prompts of the admitted long
  /// prompts begin in chunks; other long prompts are passed over. 0 = no prompt is long.
  std::int32_t long_prompt_tokens = 0;
  std::int32_t max_partial_long_prompts = 0;
  PreemptionCosts costs;

  std::vector<Fork> forks;
  std::vector<SampledToken> sampled;
  std::vector<SequenceProgress> progress;
  std::vector<SequenceId> releases;  ///< sequences to forget, in whatever state they are; unknown ids are ignored
  std::vector<RunningCandidate> running;
  std::vector<SwapInCandidate> swapped;
  std::vector<AdmissionCandidate> waiting;
  std::vector<SequenceNeed> needs;  ///< needs that the running and swapped candidates refer to by ranges

  static constexpr auto visit_fields(auto& self, auto&& visit) {
    return visit(self.step, self.last_completed_step, self.first_failed_step, self.device_memory_lost,
                 self.reset_prefix_cache, self.token_budget, self.num_preempted_for_rows, self.num_giving_way,
                 self.long_prompt_tokens, self.max_partial_long_prompts, self.costs, self.forks, self.sampled,
                 self.progress, self.releases, self.running, self.swapped, self.waiting, self.needs);
  }
};

/// OK: served in this step. LATER: cannot be served now, but perhaps later. NEVER: does not fit even into an empty
/// pool. A swapped-out candidate that is answered NEVER keeps its host blocks until it is released. Either it has
/// outgrown the pool, or shared blocks that it left on the device are gone, so that it must be recomputed. A recomputed
/// sequence that has outgrown the pool meanwhile is answered NEVER too.
enum class AllocStatus : std::uint8_t { ok, later, never };
constexpr AllocStatus last_value(AllocStatus) {
  return AllocStatus::never;
}

enum class RunningOutcome : std::uint8_t {
  scheduled,  ///< it runs in this step
  /// It keeps its blocks but does not run: the token budget is used up, or its window must move first.
  skipped,
  preempted_recompute,  ///< its blocks are gone; it must be admitted again with all its tokens
  preempted_swap,       ///< its blocks are in the host pool after this step's CachePlan
  never,                ///< it does not fit even into an empty pool; its blocks are gone
};
constexpr RunningOutcome last_value(RunningOutcome) {
  return RunningOutcome::never;
}

struct AdmissionOutcome {
  AllocStatus status = AllocStatus::later;
  /// Number of tokens that the prefix cache serves; computing starts behind them.
  std::int32_t num_cached_tokens = 0;
  std::int32_t num_new_tokens = 0;  ///< number of tokens to run in this step
  /// The last step that computes any of the cached tokens and has not passed yet, possibly the planned one; 0 = all are
  /// computed. If this step, or an earlier step in flight, fails, the cached tokens are not valid.
  StepId awaits_step = 0;
  /// Whether it is a long prompt that is answered `later` without stopping the candidates behind it.
  bool is_passed_over = false;

  static constexpr auto visit_fields(auto& self, auto&& visit) {
    return visit(self.status, self.num_cached_tokens, self.num_new_tokens, self.awaits_step, self.is_passed_over);
  }
};

/// A part of a sequence's block table that changed: entries [first_block, first_block + blocks.count).
struct TableDelta {
  SequenceId sequence = 0;
  /// Logical index in the table; `blocks` replace the entries from here on.
  std::int32_t first_block = 0;
  Range blocks;            ///< range of MemoryGrant::blocks
  KvGroupId kv_group = 0;  ///< KV group of the table

  static constexpr auto visit_fields(auto& self, auto&& visit) {
    return visit(self.sequence, self.first_block, self.blocks, self.kv_group);
  }
};

struct MemoryStats {
  std::int32_t device_blocks_total = 0;
  std::int32_t device_blocks_free = 0;  ///< number of blocks that hold nothing
  /// Number of blocks without an owner whose content the prefix cache keeps; they can be evicted.
  std::int32_t device_blocks_cached = 0;
  std::int32_t host_blocks_total = 0;
  std::int32_t host_blocks_free = 0;
  std::int64_t prefix_cache_queries = 0;  ///< number of tokens that were looked up
  std::int64_t prefix_cache_hits = 0;     ///< number of tokens that were found
  std::int64_t allocated_slots = 0;       ///< number of token slots in blocks that sequences own
  /// Number of these slots that hold a token, or will hold a token of a scheduled step.
  std::int64_t used_slots = 0;

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
  std::vector<TableDelta> table_deltas;   ///< changed tables of the sequences that run in this step
  std::vector<BlockId> blocks;
  bool has_cache_plan = false;  ///< whether workers must wait for CacheReady of this step
  MemoryStats memory;

  static constexpr auto visit_fields(auto& self, auto&& visit) {
    return visit(self.step, self.running, self.swapped, self.waiting, self.table_deltas, self.blocks,
                 self.has_cache_plan, self.memory);
  }
};

/// A move of one whole block, of any KV group, between pools or within the device pool. `last_touched_step` is the last
/// step that reads or writes either block; the move must wait for that step (0 = no such step in flight).
struct BlockMove {
  BlockId from = 0;
  BlockId to = 0;
  StepId last_touched_step = 0;

  static constexpr auto visit_fields(auto& self, auto&& visit) {
    return visit(self.from, self.to, self.last_touched_step);
  }
};

/// Message 4, block manager -> cache engines. Executed in this order: swap_out, swap_in, copies. All moves finish
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

#pragma once

#include <cstdint>
#include <vector>

#include "engine/config.hpp"
#include "engine/request/thinking_budget.hpp"
#include "engine/types.hpp"

namespace pagoda::scheduling {

struct SchedulerConfig {
  std::int32_t max_num_seqs = 256;             ///< batch rows; at most max_num_batched_tokens
  std::int32_t max_num_batched_tokens = 2048;  ///< tokens per step; without chunked prefill at least the longest prompt
  /// Most tokens that a step runs of a sequence, so that its sliding window and the step fit the pool
  /// (KvGroup::largest_chunk); 0 = no limit.
  std::int32_t max_chunk_tokens = 0;
  std::int32_t pipeline_depth = 2;
  bool enable_chunked_prefill = true;
  bool can_swap = false;               ///< there is a host pool
  std::int64_t block_bytes = 0;        ///< what a swap moves per block
  std::int32_t num_device_blocks = 0;  ///< told in stats before the first step
  std::int32_t num_host_blocks = 0;    ///< likewise
  SchedulingPolicy policy = SchedulingPolicy::fcfs;
  double priority_aging_s = 0;  ///< see make_waiting_queue
  TimeUs max_chunk_us = 0;      ///< prompts add about so much to a step in which others decode; 0 = no limit
  double most_stretch = 0;      ///< beside max_chunk_us: how many times as long they make the step; 0 = no limit
  TimeUs target_step_us = 0;    ///< a step in which others decode is to take no longer; 0 = no target
  /// Prompts with more tokens left are long: no more than max_partial_long_prompts run in chunks at a time, and they
  /// leave room in a step for those that are not. 0 = half of max_num_batched_tokens, and else their largest chunk too.
  std::int32_t long_prefill_tokens = 0;
  std::int32_t max_partial_long_prompts = 1;
  /// With the priority policy: running requests of a lower priority give way to one that waits.
  bool preempts_for_priority = true;
  double delay_factor = 0;  ///< prompts wait so many times the last prompt step's time while others run
  PreemptionPolicy preemption = PreemptionPolicy::recompute;
  std::vector<TokenId> eos_token_ids;
  std::int64_t vocab_size = 0;  ///< of masks
  ThinkingMarks thinking;       ///< known where requests have a thinking_token_budget

  static constexpr auto visit_fields(auto& self, auto&& visit) {
    return visit(self.max_num_seqs, self.max_num_batched_tokens, self.max_chunk_tokens, self.pipeline_depth,
                 self.enable_chunked_prefill, self.can_swap, self.block_bytes, self.num_device_blocks,
                 self.num_host_blocks, self.policy, self.priority_aging_s, self.max_chunk_us, self.most_stretch,
                 self.target_step_us, self.long_prefill_tokens, self.max_partial_long_prompts,
                 self.preempts_for_priority, self.delay_factor, self.preemption, self.eos_token_ids, self.vocab_size,
                 self.thinking);
  }
};

/// Tokens of prompts, and of prompts and decodes together, that a step has room for whatever max_chunk_us and
/// most_stretch are, unless target_step_us says less: fewer would not make use of the weights, and prompts would wait
/// for each other while rows are free (docs/benchmarks.md).
inline constexpr std::int32_t kMinChunk = 8;
inline constexpr std::int32_t kMinBatch = 24;

/// Prompts have an eighth of a step, however many decode; and as many rows of one that target_step_us bounds are kept
/// for them.
inline constexpr std::int32_t kPromptShare = 8;
/// Log-probabilities of prompt tokens that the results of one step have room for; of each prompt in it one token runs
/// all the same.
inline constexpr std::int64_t kMaxPromptLogprobsOfStep = std::int64_t{1} << 20;

}  // namespace pagoda::scheduling

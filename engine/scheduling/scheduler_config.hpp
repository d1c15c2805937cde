#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "engine/config.hpp"
#include "engine/request/thinking_budget.hpp"
#include "engine/speculation_config.hpp"
#include "engine/step/kv_layout.hpp"
#include "engine/types.hpp"

namespace pagoda::scheduling {

struct SchedulerConfig {
  std::int32_t max_num_seqs = 256;  ///< number of batch rows; at most max_num_batched_tokens
  /// Number of tokens per step; without chunked prefill at least the length of the longest prompt.
  std::int32_t max_num_batched_tokens = 2048;
  /// Layout of the KV blocks. With a sliding window, a step runs at most KvLayout::largest_chunk tokens of a sequence,
  /// so that its windows and the step fit the pool.
  KvLayout layout;
  std::int32_t pipeline_depth = 2;
  bool enable_chunked_prefill = true;
  bool can_swap = false;               ///< whether there is a host pool
  std::int64_t block_bytes = 0;        ///< bytes that a swap moves per block
  std::int32_t num_device_blocks = 0;  ///< size of the device pool
  std::int32_t num_host_blocks = 0;    ///< value in stats before the first step
  SchedulingPolicy policy = SchedulingPolicy::fcfs;
  double priority_aging_s = 0;  ///< see make_waiting_queue
  /// Time that prompts may add to a step in which others decode, about; 0 = no limit.
  TimeUs max_chunk_us = 0;
  /// Factor by which prompts may lengthen such a step, beside max_chunk_us; 0 = no limit.
  double max_stretch = 0;
  /// Target for the duration of a step in which others decode; 0 = no target.
  TimeUs target_step_us = 0;
  /// Prompts with more tokens left are long: at most max_partial_long_prompts of them run in chunks at a time, and they
  /// leave room in a step for prompts that are not long. If it is set, it is their largest chunk too. 0 = half of
  /// max_num_batched_tokens.
  std::int32_t long_prefill_tokens = 0;
  std::int32_t max_partial_long_prompts = 1;
  /// Whether, with the priority policy, running requests give way to a waiting request of higher priority.
  bool preempts_for_priority = true;
  /// Factor of the last prompt step's duration: while others run, a new prompt waits this long; 0 = no wait.
  double delay_factor = 0;
  std::int32_t max_adapters = 0;  ///< maximum number of different adapters in a step
  PreemptionPolicy preemption = PreemptionPolicy::recompute;
  std::vector<TokenId> eos_token_ids;
  std::int64_t vocab_size = 0;  ///< vocabulary of the masks
  ThinkingMarks thinking;       ///< known if requests may have a thinking_token_budget
  /// Number of pipeline stages: each runs some of the model's layers, one step behind the other, and the last one
  /// samples. No step is then planned behind an unknown sample: at most one step in flight has a sample of a sequence
  /// that will be used. Chunks of one prompt may be in several steps.
  std::int32_t num_stages = 1;

  SpeculationConfig speculation;  ///< not with stages
  /// Maximum number of samples in a step, those of drafts included; 0 = max_num_seqs.
  std::int32_t max_num_samples = 0;

  std::int32_t samples_per_step() const { return std::max(max_num_seqs, max_num_samples); }
  bool has_stages() const { return num_stages > 1; }
  /// Returns the maximum number of unread tokens of a sequence that the draft model reads just before it makes drafts:
  /// a head reads all right drafts again. More are read in steps before, as a prompt is.
  std::int32_t max_catch_up() const { return std::clamp(speculation.max_drafts + 1, 16, 63); }
  /// Returns the maximum number of steps in flight: with stages at least one for each.
  std::int32_t max_steps_in_flight() const { return std::max(pipeline_depth, num_stages); }

  static constexpr auto visit_fields(auto& self, auto&& visit) {
    return visit(self.max_num_seqs, self.max_num_batched_tokens, self.layout, self.pipeline_depth,
                 self.enable_chunked_prefill, self.can_swap, self.block_bytes, self.num_device_blocks,
                 self.num_host_blocks, self.policy, self.priority_aging_s, self.max_chunk_us, self.max_stretch,
                 self.target_step_us, self.long_prefill_tokens, self.max_partial_long_prompts,
                 self.preempts_for_priority, self.delay_factor, self.max_adapters, self.preemption, self.eos_token_ids,
                 self.vocab_size, self.thinking, self.num_stages, self.speculation, self.max_num_samples);
  }
};

/// Minimum number of prompt tokens (kMinChunk), and of prompt and decode tokens together (kMinBatch), that a step has
/// room for, whatever max_chunk_us and max_stretch are. Only target_step_us may set less. With fewer tokens a step
/// would not use the weights well, and prompts would wait for each other while rows are free
/// (docs/benchmarks/scheduling.md).
inline constexpr std::int32_t kMinChunk = 8;
inline constexpr std::int32_t kMinBatch = 24;

/// Prompts get one eighth of a step, however many sequences decode. If target_step_us limits a step, the same share of
/// its rows is kept for them.
inline constexpr std::int32_t kPromptShare = 8;
/// Maximum number of prompt log-probabilities in the results of one step. Each prompt in the step still runs at least
/// one token.
inline constexpr std::int64_t kMaxPromptLogprobsOfStep = std::int64_t{1} << 20;
/// Maximum number of tokens that proposers look at for the first time in one plan: they take about a tenth of a
/// millisecond.
inline constexpr std::int32_t kMaxLookedUpTokens = 4096;

}  // namespace pagoda::scheduling

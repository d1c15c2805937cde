#pragma once

/// What the workers run in a step (docs/architecture/step.md, message 6).

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "engine/step/plan.hpp"
#include "engine/types.hpp"

namespace pagoda {

/// How the tokens of a row are drawn: what a device must know of a request's sampling parameters. Their meaning is that
/// of SamplingParams; what is derived is derived already.
struct RowSampling {
  double temperature = 1.0;  ///< 0 = greedy
  double top_p = 1.0;
  std::int64_t top_k = 0;  ///< 0 = all
  double min_p = 0.0;
  double presence_penalty = 0.0;
  double frequency_penalty = 0.0;
  double repetition_penalty = 1.0;
  std::int64_t penalty_window = -1;  ///< last tokens, prompt included, that the penalties look at; -1 = all
  std::vector<std::pair<TokenId, float>> logit_bias;
  TokenIds allowed_tokens;            ///< only these are sampled; empty = all
  std::vector<TokenIds> bad_words;    ///< the last token of each is not sampled behind the others; none is empty
  std::int64_t min_tokens = 0;        ///< until a sequence has so many, it does not get ...
  TokenIds banned_before_min_tokens;  ///< ... any of these
  std::int32_t num_logprobs = -1;     ///< likeliest tokens to report beside each sampled one; -1 = nothing
  TokenIds logprob_tokens;            ///< num_logprobs tokens to report in place of the likeliest; empty = these
  std::int32_t num_prompt_logprobs = -1;
  bool processed_logprobs = false;  ///< logprobs after penalties and bias, not of the model's own distribution
  bool appends_samples = true;      ///< the row goes on with what it samples; else it is told (ForcedToken)

  static constexpr auto visit_fields(auto& self, auto&& visit) {
    return visit(self.temperature, self.top_p, self.top_k, self.min_p, self.presence_penalty, self.frequency_penalty,
                 self.repetition_penalty, self.penalty_window, self.logit_bias, self.allowed_tokens, self.bad_words,
                 self.min_tokens, self.banned_before_min_tokens, self.num_logprobs, self.logprob_tokens,
                 self.num_prompt_logprobs, self.processed_logprobs, self.appends_samples);
  }
};

/// What a device must know of the request that a row belongs to.
struct RowSpec {
  SharedTokens prompt;  ///< not empty
  RowSampling sampling;
  std::uint64_t seed = 0;
  std::uint64_t adapter = 0;  ///< 0 = the base model

  static constexpr auto visit_fields(auto& self, auto&& visit) {
    return visit(self.prompt, self.sampling, self.seed, self.adapter);
  }
};

/// A sequence enters a worker's persistent batch. The worker keeps the row's tokens from here on: `tokens_so_far` are
/// those generated before (by a preempted or forked sequence); later ones it samples itself, or is told (ForcedToken).
struct NewRow {
  RowId row = 0;
  SequenceId sequence = 0;
  std::int32_t sequence_index = 0;  ///< 0 .. n - 1 within the request
  RowSpec spec;
  TokenIds tokens_so_far;

  static constexpr auto visit_fields(auto& self, auto&& visit) {
    return visit(self.row, self.sequence, self.sequence_index, self.spec, self.tokens_so_far);
  }
};

/// A change of a row's block table: entries from first_block on are replaced.
struct RowTableDelta {
  RowId row = 0;
  std::int32_t first_block = 0;
  Range blocks;            ///< of ExecuteStep::blocks
  KvGroupId kv_group = 0;  ///< whose table

  static constexpr auto visit_fields(auto& self, auto&& visit) {
    return visit(self.row, self.first_block, self.blocks, self.kv_group);
  }
};

/// Tokens [first_position, first_position + num_tokens) of the row run in this step. A position beyond what the worker
/// knows is a placeholder: the token that an earlier step in flight samples for this row, known by then in stream
/// order.
struct RowWork {
  RowId row = 0;
  SequenceId sequence = 0;
  std::int32_t first_position = 0;
  std::int32_t num_tokens = 0;
  std::int32_t num_samples = 0;  ///< 0: a chunk that does not reach the end; 1: one token; n: the first of n sequences
  /// Prompt tokens to report on, from `first_prompt_logprob` on: each follows a token that this work runs.
  std::int32_t first_prompt_logprob = 0;
  std::int32_t num_prompt_logprobs = 0;
  bool has_mask = false;  ///< StepMasks says which tokens its samples may be; else any
  /// The last so many tokens are drafts: what the row will probably sample, told with this step. Each place before one
  /// is sampled too, as if the tokens ran one by one, and what stands behind the first draft that was sampled otherwise
  /// is not the row's. With one sample at the end; 0 for n.
  std::int32_t num_drafts = 0;

  std::int32_t end_position() const { return first_position + num_tokens; }

  static constexpr auto visit_fields(auto& self, auto&& visit) {
    return visit(self.row, self.sequence, self.first_position, self.num_tokens, self.num_samples,
                 self.first_prompt_logprob, self.num_prompt_logprobs, self.has_mask, self.num_drafts);
  }
};

/// A token of a row that the row has not sampled itself: the scheduler has chosen it (of a row that does not append its
/// samples), its grammar leaves no other, or it is a draft. Work of the same step runs it. The row's tokens reach up to
/// it from then on, whatever they did before.
struct ForcedToken {
  RowId row = 0;
  std::int32_t position = 0;  ///< behind the prompt, and not behind the row's end
  TokenId token = 0;

  static constexpr auto visit_fields(auto& self, auto&& visit) { return visit(self.row, self.position, self.token); }
};

/// Message 6, scheduler -> workers: deltas only. Applied in the order of the fields.
struct ExecuteStep {
  StepId step = 0;
  bool wait_for_cache = false;  ///< a CachePlan exists: CacheReady of this step must come first
  bool wait_for_masks = false;  ///< some work has a mask: StepMasks of this step must come before its samples are drawn
  std::vector<RowId> rows_gone;
  std::vector<NewRow> new_rows;
  std::vector<ForcedToken> forced_tokens;
  std::vector<RowTableDelta> table_deltas;
  std::vector<BlockId> blocks;
  std::vector<RowWork> work;

  static constexpr auto visit_fields(auto& self, auto&& visit) {
    return visit(self.step, self.wait_for_cache, self.wait_for_masks, self.rows_gone, self.new_rows, self.forced_tokens,
                 self.table_deltas, self.blocks, self.work);
  }
};

/// Scheduler -> workers, behind an ExecuteStep that waits for it: which tokens may be sampled. That depends on the
/// tokens of the step before, while all but the sampling does not: the worker computes meanwhile.
struct StepMasks {
  StepId step = 0;
  /// Those of ExecuteStep::work with a mask, by their place there; with drafts up to one more than these, in their
  /// order. What is not among them may sample any token: its sequence has ended meanwhile, or nobody will look at it.
  std::vector<std::int32_t> work;
  std::vector<std::uint32_t> words;  ///< kernels::mask_words(vocabulary) for each of `work`

  /// Of the work at place `i` of `work`.
  std::span<const std::uint32_t> mask(std::size_t i) const {
    const std::size_t count = words.size() / work.size();
    return std::span(words).subspan(i * count, count);
  }

  static constexpr auto visit_fields(auto& self, auto&& visit) { return visit(self.step, self.work, self.words); }
};

}  // namespace pagoda

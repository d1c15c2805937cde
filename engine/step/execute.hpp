#pragma once

/// Messages that contain the work of the workers in a step (docs/architecture/step.md, message 6).

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "engine/step/adapter_ref.hpp"
#include "engine/step/plan.hpp"
#include "engine/types.hpp"

namespace pagoda {

/// How the tokens of a row are drawn: the sampling parameters that a device needs, with the meaning that they have in
/// SamplingParams. Values that follow from other parameters are computed already.
struct RowSampling {
  double temperature = 1.0;  ///< 0 = greedy
  double top_p = 1.0;
  std::int64_t top_k = 0;  ///< 0 = all
  double min_p = 0.0;
  double presence_penalty = 0.0;
  double frequency_penalty = 0.0;
  double repetition_penalty = 1.0;
  std::int64_t penalty_window = -1;  ///< number of last tokens, prompt included, that the penalties look at; -1 = all
  std::vector<std::pair<TokenId, float>> logit_bias;
  TokenIds allowed_tokens;  ///< tokens that may be sampled; empty = all
  /// Words that must not be sampled: the last token of a word is not sampled behind its other tokens. No word is empty.
  std::vector<TokenIds> bad_words;
  std::int64_t min_tokens = 0;        ///< number of tokens before which a sequence does not get ..
  TokenIds banned_before_min_tokens;  ///< ... any of these tokens
  std::int32_t num_logprobs = -1;     ///< number of likeliest tokens to report beside each sampled one; -1 = no report
  /// Tokens (num_logprobs of them) to report in place of the likeliest; empty = the likeliest.
  TokenIds logprob_tokens;
  std::int32_t num_prompt_logprobs = -1;
  /// Whether logprobs are of the distribution after penalties and bias; false = of the model's own distribution.
  bool processed_logprobs = false;
  /// Whether the row continues with the tokens that it samples; false = the scheduler sends its tokens (ForcedToken).
  bool appends_samples = true;

  static constexpr auto visit_fields(auto& self, auto&& visit) {
    return visit(self.temperature, self.top_p, self.top_k, self.min_p, self.presence_penalty, self.frequency_penalty,
                 self.repetition_penalty, self.penalty_window, self.logit_bias, self.allowed_tokens, self.bad_words,
                 self.min_tokens, self.banned_before_min_tokens, self.num_logprobs, self.logprob_tokens,
                 self.num_prompt_logprobs, self.processed_logprobs, self.appends_samples);
  }
};

/// The facts that a device needs about the request of a row.
struct RowSpec {
  SharedTokens prompt;  ///< not empty
  RowSampling sampling;
  std::uint64_t seed = 0;
  AdapterRef adapter;

  static constexpr auto visit_fields(auto& self, auto&& visit) {
    return visit(self.prompt, self.sampling, self.seed, self.adapter);
  }
};

/// A sequence enters a worker's persistent batch. From here on the worker keeps the row's tokens. `tokens_so_far` are
/// the tokens that were generated before, by a preempted or forked sequence. The worker samples later tokens itself, or
/// receives them (ForcedToken).
struct NewRow {
  RowId row = 0;
  SequenceId sequence = 0;
  std::int32_t sequence_index = 0;  ///< index within the request, 0 .. n - 1
  RowSpec spec;
  TokenIds tokens_so_far;

  static constexpr auto visit_fields(auto& self, auto&& visit) {
    return visit(self.row, self.sequence, self.sequence_index, self.spec, self.tokens_so_far);
  }
};

/// A change of a row's block table: `blocks` replace the entries from first_block on.
struct RowTableDelta {
  RowId row = 0;
  std::int32_t first_block = 0;
  Range blocks;            ///< range of ExecuteStep::blocks
  KvGroupId kv_group = 0;  ///< KV group of the table

  static constexpr auto visit_fields(auto& self, auto&& visit) {
    return visit(self.row, self.first_block, self.blocks, self.kv_group);
  }
};

/// Work of one row: tokens [first_position, first_position + num_tokens) run in this step. A position beyond the tokens
/// that the worker knows is a placeholder. It stands for the token that an earlier step in flight samples for this row;
/// stream order ensures that the token is known when this step runs.
struct RowWork {
  RowId row = 0;
  SequenceId sequence = 0;
  std::int32_t first_position = 0;
  std::int32_t num_tokens = 0;
  /// 0 = a chunk that does not reach the end; 1 = one token; n = the first tokens of n sequences.
  std::int32_t num_samples = 0;
  /// First position of the prompt tokens to report on. Each of them follows a token that this work runs.
  std::int32_t first_prompt_logprob = 0;
  std::int32_t num_prompt_logprobs = 0;
  /// Whether StepMasks restricts the tokens that its samples may be; false = any token may be sampled.
  bool has_mask = false;
  /// Number of drafts: the last tokens of this work are guesses of the row's next samples. They are sent with this step
  /// as ForcedTokens, or the draft model makes them (num_made_drafts()). The worker also samples at the position before
  /// each draft, as if the tokens ran one by one. Tokens behind the first wrong draft do not belong to the row. Drafts
  /// require num_samples 1.
  std::int32_t num_drafts = 0;
  /// Tokens that the draft model reads before the step: [first_draft_input, first_draft_input + num_draft_inputs). If
  /// the work has drafts, these tokens end where the drafts begin, and the draft model makes the drafts, one in a run.
  std::int32_t first_draft_input = 0;
  std::int32_t num_draft_inputs = 0;

  std::int32_t end_position() const { return first_position + num_tokens; }
  /// Returns the number of drafts that the draft model makes: all or none.
  std::int32_t num_made_drafts() const { return num_draft_inputs > 0 ? num_drafts : 0; }

  static constexpr auto visit_fields(auto& self, auto&& visit) {
    return visit(self.row, self.sequence, self.first_position, self.num_tokens, self.num_samples,
                 self.first_prompt_logprob, self.num_prompt_logprobs, self.has_mask, self.num_drafts,
                 self.first_draft_input, self.num_draft_inputs);
  }
};

/// A token that is sent to a row, because the device did not sample it: the scheduler or a grammar chose it, it is a
/// draft, or, with pipeline stages, only the last stage sampled it. The step that sends it also runs it. It becomes the
/// last token of the row, and replaces what the row had at this position and behind it.
struct ForcedToken {
  RowId row = 0;
  std::int32_t position = 0;  ///< position behind the prompt, and at most one behind the row's last token
  TokenId token = 0;

  static constexpr auto visit_fields(auto& self, auto&& visit) { return visit(self.row, self.position, self.token); }
};

/// Message 6, scheduler -> workers: deltas only. The worker applies the fields in their order.
struct ExecuteStep {
  StepId step = 0;
  bool wait_for_cache = false;  ///< whether a CachePlan exists: then CacheReady of this step must come first
  /// Whether some work has a mask: then StepMasks of this step must come before its samples are drawn.
  bool wait_for_masks = false;
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

/// Scheduler -> workers, after an ExecuteStep with wait_for_masks: the tokens that may be sampled. Masks depend on the
/// tokens of the step before; only the sampling needs them, so the worker runs the model meanwhile.
struct StepMasks {
  StepId step = 0;
  /// Indices into ExecuteStep::work of the work that each mask belongs to, ascending. Work with drafts has up to
  /// num_drafts + 1 masks, in the order of its positions. Work that is missing here may sample any token: either all
  /// tokens are allowed, or its sample will not be used (the sequence has ended, or the mask is late).
  std::vector<std::int32_t> work;
  std::vector<std::uint32_t> words;  ///< words of all masks, kernels::mask_words(vocabulary) for each entry of `work`

  /// Returns the mask of `work[i]`.
  std::span<const std::uint32_t> mask(std::size_t i) const {
    const std::size_t count = words.size() / work.size();
    return std::span(words).subspan(i * count, count);
  }

  static constexpr auto visit_fields(auto& self, auto&& visit) { return visit(self.step, self.work, self.words); }
};

}  // namespace pagoda

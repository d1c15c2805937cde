#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "engine/request/request_spec.hpp"
#include "engine/scheduling/decoding.hpp"
#include "engine/scheduling/draft_outcomes.hpp"
#include "engine/scheduling/scheduler_config.hpp"
#include "engine/scheduling/tokens_ahead.hpp"
#include "engine/scheduling/waiting_queue.hpp"
#include "engine/step/result.hpp"
#include "engine/types.hpp"

namespace pagoda::scheduling {

enum class SequenceState : std::uint8_t {
  waiting,   ///< holds no KV; must be admitted
  running,   ///< holds KV on the device and, while it takes part in steps, a batch row
  swapped,   ///< holds its KV in the host pool
  finished,  ///< does not run again; its results in flight are dropped
};
constexpr SequenceState last_value(SequenceState) {
  return SequenceState::finished;
}

/// One sequence of a request, in the scheduler's view. Positions count from the first token of the prompt.
struct Sequence {
  SequenceId id = 0;
  std::int32_t index = 0;             ///< index within the request
  TokenIds output;                    ///< sampled tokens that are known
  std::int32_t num_placeholders = 0;  ///< number of steps in flight that sample a token of it
  TokensAhead ahead;                  ///< tokens behind these; set by its Constraint and its Proposer
  SequenceState state = SequenceState::waiting;
  std::int32_t num_scheduled_tokens = 0;  ///< number of tokens that were planned into steps
  std::int32_t num_computed_tokens = 0;   ///< number of these tokens whose steps have succeeded
  std::int32_t num_reported = 0;          ///< number of computed tokens that were reported to the block manager
  std::size_t num_reported_tokens = 0;    ///< number of output tokens that the block manager knows
  /// Number of tokens at its last admission. Others may share the blocks of these as soon as a step is to compute them.
  std::int32_t num_admitted_tokens = 0;
  StepId last_step = 0;         ///< the last step that was planned to run it
  StepId awaits_step = 0;       ///< see AdmissionOutcome: if that step fails, the sequence must be recomputed
  std::int32_t epoch = 0;       ///< raised when its KV is dropped; results of older epochs bring only tokens
  bool is_passed_over = false;  ///< whether it was passed over as a long prompt: see AdmissionOutcome
  /// Whether it does not fit the pool any more: it ends with finish reason length once its results are known.
  bool outgrew = false;
  bool waits = false;  ///< whether it waits for results of other sequences (Decoding), or of its drafts
  /// Whether its mask was too late for a step: it runs again when the mask is made (Constraint).
  bool awaits_mask = false;
  RowId row = -1;
  /// Prompt and output together, made once per preemption; null = the prompt alone.
  SharedTokens recompute_tokens;
  /// Number of output tokens that its row has on every stage: sent, or, without stages, sampled, or to be sampled by a
  /// step in flight.
  std::size_t num_row_tokens = 0;
  /// Number of first tokens whose KV the draft model has, or will have when steps in flight have ended.
  std::int32_t num_drafted_tokens = 0;
  /// Maximum number of tokens that the draft model reads of it in the next plan's step; 0 = none.
  std::int32_t max_draft_inputs = 0;
  DraftOutcomes made_drafts;            ///< results of drafts that the draft model made
  std::int32_t num_charged_tokens = 0;  ///< number of first tokens that were charged to the tenant
  std::int32_t num_lost_tokens = 0;     ///< number of computed tokens whose KV was dropped since it ran; for metrics

  /// All fields except recompute_tokens, which are made when they are missing, and fields for counts only.
  static constexpr auto visit_fields(auto& self, auto&& visit) {
    return visit(self.id, self.index, self.output, self.num_placeholders, self.ahead, self.state,
                 self.num_scheduled_tokens, self.num_computed_tokens, self.num_reported, self.num_reported_tokens,
                 self.num_admitted_tokens, self.last_step, self.awaits_step, self.epoch, self.is_passed_over,
                 self.outgrew, self.waits, self.awaits_mask, self.row, self.num_row_tokens, self.num_drafted_tokens,
                 self.max_draft_inputs, self.made_drafts, self.num_charged_tokens);
  }

  /// Returns the number of tokens that it has generated, or will have generated when its steps in flight have ended.
  std::int64_t num_generated() const {
    return std::ssize(output) + num_placeholders + static_cast<std::int64_t>(ahead.size());
  }
  /// Returns whether `num_runnable` tokens that may run belong to its admission: to its prompt, or to tokens that it
  /// computes again. Otherwise they are its next token, and tokens that are known ahead.
  bool runs_prompt(std::int32_t num_runnable) const {
    return num_runnable > 1 && num_scheduled_tokens < num_admitted_tokens;
  }
  bool awaits_drafts() const { return waits && !ahead.drafts.empty(); }
  /// Returns the number of forced tokens that were sent to its row.
  std::size_t num_forced_sent() const {
    const std::size_t before = output.size() + static_cast<std::size_t>(num_placeholders);
    return num_row_tokens <= before ? 0 : std::min(num_row_tokens - before, ahead.forced.size());
  }
  /// Forgets the samples of steps in flight, which will not come. Whether it has outgrown the pool is decided again.
  void forget_samples() {
    outgrew = false;
    waits &= ahead.drafts.empty();
    num_placeholders = 0;
    ahead = {};
  }
};

/// All sequences of one request.
struct SequenceGroup {
  SharedSpec spec;
  QueueEntry entry;
  /// One sequence until the prompt is done. Then the beams; or the unfinished samples that have begun, sorted by id.
  std::vector<Sequence> sequences;
  std::int32_t num_to_begin = 0;  ///< number of samples that have no Sequence yet
  /// Number of tokens generated by samples that are not in `sequences` any more.
  std::int64_t num_finished_tokens = 0;
  std::int32_t num_in_flight = 0;  ///< number of its WorkRefs in steps in flight
  std::int32_t rows_reserved = 0;
  bool has_finished = false;  ///< whether a sequence has finished since the last replace_finished()
  bool in_running = false;    ///< whether it is in the running queue; the next two fields are alike
  bool in_swapped = false;
  bool in_waiting = false;
  std::unique_ptr<Decoding> decoding;
  /// Whether the prompt's one sequence has become as many as the request wants.
  bool forked = false;
  /// The prompt position whose logprob is the next to request from a worker, and the first whose logprob is not known.
  /// Both are at the prompt's end if no logprobs are wanted.
  std::int32_t next_prompt_logprob = 0;
  std::int32_t first_unknown_prompt_logprob = 0;
  /// Number of generated tokens that its longest sequence must reach to be behind the last crash.
  std::int64_t cleared_length = 0;
  TimeUs first_scheduled_us = -1;

  /// All fields except those that follow from the spec, and `decoding`, which saves itself.
  static constexpr auto visit_fields(auto& self, auto&& visit) {
    return visit(self.spec, self.sequences, self.num_to_begin, self.num_finished_tokens, self.num_in_flight,
                 self.rows_reserved, self.forked, self.next_prompt_logprob, self.first_unknown_prompt_logprob,
                 self.cleared_length, self.first_scheduled_us);
  }

  /// Sets the fields that follow from the spec.
  void follow_spec(const SchedulerConfig& config, const OutputHistory& history) {
    entry = {spec->id, spec->priority, spec->user, static_cast<std::int64_t>(spec->prompt->size()), spec->arrival_us};
    decoding = make_decoding(spec, config, history);
  }

  std::int32_t num_samples() const { return static_cast<std::int32_t>(spec->sampling.num_sequences()); }
  std::int32_t prompt_len() const { return static_cast<std::int32_t>(entry.num_prompt_tokens); }
  /// Returns the number of tokens of the sequence, including those that steps in flight will add, and drafts.
  std::int32_t length(const Sequence& s) const { return prompt_len() + static_cast<std::int32_t>(s.num_generated()); }
  /// Returns whether the next tokens to run are known only when the last result is, so that no step is planned ahead.
  bool depends_on_results() const { return !decoding->may_plan_ahead(*this); }
  /// Returns whether some of its sequences do not run before a result is known.
  bool waits_for_results() const {
    return depends_on_results() || std::ranges::any_of(sequences, &Sequence::awaits_drafts);
  }
  /// Returns whether the sample behind all tokens of `s` needs a mask, which is made when these tokens are known.
  bool wants_mask(const Sequence& s) const {
    return decoding->constraint() != nullptr && decoding->constraint()->wants_mask(s);
  }
  /// Returns the number of log-probabilities that come back with each prompt token that runs; 0 if there are none or
  /// few.
  std::int64_t logprobs_of_prompt_token() const {
    const std::int64_t count = spec->sampling.prompt_logprobs.value_or(0);
    return next_prompt_logprob >= prompt_len() || count <= SamplingLimits{}.max_logprobs ? 0 : count + 1;
  }
  /// Returns the number of tokens that may run now; 0 while the next step depends on a result in flight, or if nothing
  /// is left to generate.
  std::int32_t runnable_tokens(const Sequence& s) const {
    if (s.state == SequenceState::finished || s.num_generated() >= spec->sampling.max_tokens) return 0;
    if (s.waits || s.awaits_mask || s.ahead.will_end || (s.num_placeholders > 0 && depends_on_results())) return 0;
    return length(s) - s.num_scheduled_tokens;
  }
  /// Returns the maximum number of drafts behind the next token of `s`; 0 if the next step does not run that token, or
  /// not it alone. The last token of a sequence needs no draft.
  std::int64_t max_drafts(const Sequence& s) const {
    const bool runs_next = s.state == SequenceState::running && forked && s.ahead.empty() && s.num_placeholders <= 1 &&
                           s.num_scheduled_tokens >= s.num_admitted_tokens && runnable_tokens(s) == 1;
    return runs_next ? spec->sampling.max_tokens - s.num_generated() - 1 : 0;
  }
  /// Returns the number of known generated tokens of its longest unfinished sequence.
  std::int64_t longest_output() const {
    std::int64_t longest = 0;
    for (const Sequence& s : sequences) {
      if (s.state != SequenceState::finished) longest = std::max<std::int64_t>(longest, std::ssize(s.output));
    }
    return longest;
  }
  std::int32_t num_unfinished() const {
    std::int32_t count = num_to_begin;
    for (const Sequence& s : sequences) count += s.state == SequenceState::finished ? 0 : 1;
    return count;
  }
  /// Returns the number of free rows that it needs for some of its sequences to begin.
  std::int32_t rows_wanted() const {
    return rows_reserved > 0 && !decoding->has_independent_sequences() ? 0 : decoding->num_rows(*this);
  }
  /// Returns whether none of it may be admitted now, because the masks of its waiting sequences are not made.
  bool awaits_masks() const {
    return std::ranges::none_of(sequences,
                                [](const Sequence& s) { return s.state == SequenceState::waiting && !s.awaits_mask; });
  }
  bool any(SequenceState state) const {
    for (const Sequence& s : sequences) {
      if (s.state == state) return true;
    }
    return false;
  }
  bool all_finished() const {
    if (num_to_begin > 0) return false;
    for (const Sequence& s : sequences) {
      if (s.state != SequenceState::finished) return false;
    }
    return true;
  }
};

}  // namespace pagoda::scheduling

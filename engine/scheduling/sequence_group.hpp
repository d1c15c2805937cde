#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "engine/request/request_spec.hpp"
#include "engine/request/thinking_budget.hpp"
#include "engine/scheduling/decoding.hpp"
#include "engine/scheduling/request_masks.hpp"
#include "engine/scheduling/scheduler_config.hpp"
#include "engine/scheduling/waiting_queue.hpp"
#include "engine/step/result.hpp"
#include "engine/types.hpp"

namespace pagoda::scheduling {

enum class SequenceState : std::uint8_t {
  waiting,   ///< holds no KV; must be admitted
  running,   ///< holds KV on the device and, while it takes part in steps, a batch row
  swapped,   ///< its KV is in the host pool
  finished,  ///< will never run again; results in flight are dropped
};
constexpr SequenceState last_value(SequenceState) {
  return SequenceState::finished;
}

/// One sequence of a request, as the scheduler sees it. Positions count from the prompt's first token.
struct Sequence {
  SequenceId id = 0;
  std::int32_t index = 0;             ///< within the request
  TokenIds output;                    ///< sampled and known
  std::int32_t num_placeholders = 0;  ///< samples of steps in flight
  TokenIds forced;                    ///< must follow the sample in flight (JumpForwardTokens); not in `output` yet
  TokenIds drafts;                    ///< behind these; until their step is planned, and then until it has ended
  bool will_end = false;              ///< with these, or with the sample
  SequenceState state = SequenceState::waiting;
  std::int32_t num_scheduled_tokens = 0;  ///< tokens that were planned into steps
  std::int32_t num_computed_tokens = 0;   ///< of them, those whose steps have succeeded
  std::int32_t num_reported = 0;          ///< computed tokens that the block manager was told of
  std::size_t num_reported_tokens = 0;    ///< output tokens that the block manager knows
  std::int32_t num_admitted_tokens =
      0;                        ///< of its last admission; others may share them as soon as a step is to compute them
  StepId awaits_step = 0;       ///< see AdmissionOutcome: it must be recomputed should that step fail
  std::int32_t epoch = 0;       ///< raised when its KV is thrown away; results of older epochs bring only tokens
  bool is_passed_over = false;  ///< as a long prompt: see AdmissionOutcome
  bool outgrew = false;  ///< does not fit the pool any more: ends with finish reason length once its results are known
  bool waits = false;    ///< for results of others of its group (Decoding), or for what becomes of its drafts
  bool awaits_mask = false;           ///< its mask came too late for a step: it runs again when the mask is made
  std::optional<MadeMask> made_mask;  ///< of its next sample
  std::int32_t course = 0;            ///< raised when tokens of `output` are replaced, which else only grows
  RowId row = -1;
  SharedTokens recompute_tokens;          ///< prompt and output, made once per preemption; null = the prompt alone
  std::size_t num_row_tokens = 0;         ///< output tokens that its row has: sampled, told, or to be sampled in flight
  std::int32_t most_drafts = kMaxDrafts;  ///< that it gets at once: fewer where many were wrong
  std::int32_t num_charged_tokens = 0;    ///< tokens up to this position were charged to the tenant
  std::int32_t num_lost_tokens = 0;       ///< computed ones whose KV was thrown away since it ran; for the metrics
  ThinkingProgress thinking;              ///< in `output`
  SequenceId parent = 0;                  ///< that it has forked from; for RequestMasks, likewise the next two
  std::size_t num_followed = 0;           ///< tokens of `output` that MaskJobs have brought
  std::optional<std::size_t> asked_mask;  ///< a job is under way, for the mask behind so many tokens

  /// But for recompute_tokens, which are made where they are missing, what is counted only, and what is known of masks
  /// that are to be made.
  static constexpr auto visit_fields(auto& self, auto&& visit) {
    return visit(self.id, self.index, self.output, self.num_placeholders, self.forced, self.drafts, self.will_end,
                 self.state, self.num_scheduled_tokens, self.num_computed_tokens, self.num_reported,
                 self.num_reported_tokens, self.num_admitted_tokens, self.awaits_step, self.epoch, self.is_passed_over,
                 self.outgrew, self.waits, self.awaits_mask, self.made_mask, self.course, self.row, self.num_row_tokens,
                 self.most_drafts, self.num_charged_tokens);
  }

  /// Tokens that it has generated, or will have when what is in flight has ended.
  std::int64_t num_generated() const {
    return std::ssize(output) + num_placeholders + std::ssize(forced) + std::ssize(drafts);
  }
  /// Whether the mask of the sample behind all of `output` is made.
  bool has_mask() const { return made_mask && made_mask->num_tokens == output.size(); }
  bool awaits_drafts() const { return waits && !drafts.empty(); }
  /// Forced tokens that its row was told.
  std::size_t num_forced_sent() const {
    const std::size_t before = output.size() + static_cast<std::size_t>(num_placeholders);
    return num_row_tokens <= before ? 0 : std::min(num_row_tokens - before, forced.size());
  }
  /// Its tokens are others from now on.
  void replace_output(TokenIds tokens) {
    if (tokens == output) return;
    output = std::move(tokens);
    ++course;
    thinking = {};
    num_followed = 0;
    awaits_mask = false;
    asked_mask.reset();
    made_mask.reset();
  }
  /// What steps in flight sample will not come. Whether it has outgrown the pool is seen anew.
  void forget_samples() {
    outgrew = false;
    waits &= drafts.empty();
    num_placeholders = 0;
    forced.clear();
    drafts.clear();
    will_end = false;
  }
};

/// All sequences of one request.
struct SequenceGroup {
  SharedSpec spec;
  QueueEntry entry;
  /// One until the prompt is done. Then the beams; or those of the samples that have begun and go on, by ids that rise.
  std::vector<Sequence> sequences;
  std::int32_t num_to_begin = 0;         ///< samples that have no Sequence yet
  std::int64_t num_finished_tokens = 0;  ///< that samples had generated which are gone from `sequences`
  std::int32_t num_in_flight = 0;        ///< steps in flight that include it
  std::int32_t rows_reserved = 0;
  bool has_finished = false;  ///< some of `sequences`, since GroupTable::replace_finished
  bool in_running = false;    ///< listed in the running queue; likewise below
  bool in_swapped = false;
  bool in_waiting = false;
  std::unique_ptr<Decoding> decoding;
  std::shared_ptr<RequestMasks> masks;      ///< of a request with a grammar or a thinking_token_budget
  std::optional<ThinkingBudget> thinking;   ///< of the spec's thinking_token_budget, if it has one
  std::vector<SequenceId> ended_sequences;  ///< of which `masks` is to hear with the next job
  bool forked = false;                      ///< the prompt's one sequence has become as many as the request wants
  /// The prompt position whose logprob is to be asked of a worker next, and the first that is not known; both at the
  /// prompt's end when none are wanted.
  std::int32_t next_prompt_logprob = 0;
  std::int32_t first_unknown_prompt_logprob = 0;
  std::int64_t cleared_length = 0;  ///< generated tokens of its longest sequence with which it is behind the last crash
  TimeUs first_scheduled_us = -1;

  /// But for what follows from the spec, as `masks` and `thinking` do, and `decoding`, which saves itself.
  static constexpr auto visit_fields(auto& self, auto&& visit) {
    return visit(self.spec, self.sequences, self.num_to_begin, self.num_finished_tokens, self.num_in_flight,
                 self.rows_reserved, self.forked, self.next_prompt_logprob, self.first_unknown_prompt_logprob,
                 self.cleared_length, self.first_scheduled_us);
  }

  /// Its entry and its strategy are those of the spec.
  void follow_spec(const SchedulerConfig& config) {
    entry = {spec->id, spec->priority, spec->user, static_cast<std::int64_t>(spec->prompt->size()), spec->arrival_us};
    decoding = make_decoding(*spec, config.eos_token_ids);
    thinking = thinking_budget_of(*spec, config);
    if (spec->grammar || thinking) masks = std::make_shared<RequestMasks>(spec, config);
  }

  std::int32_t num_samples() const { return static_cast<std::int32_t>(spec->sampling.num_sequences()); }
  std::int32_t prompt_len() const { return static_cast<std::int32_t>(spec->prompt->size()); }
  /// Tokens of the sequence; those that it will have with what is in flight, and drafts, included.
  std::int32_t length(const Sequence& s) const { return prompt_len() + static_cast<std::int32_t>(s.num_generated()); }
  /// What runs next is known only when the last result is: the group is not looked ahead.
  bool depends_on_results() const { return !decoding->wants_jump_forward(*this); }
  /// Some of it does not run until a result is known.
  bool waits_for_results() const {
    return depends_on_results() || std::ranges::any_of(sequences, &Sequence::awaits_drafts);
  }
  /// Whether which tokens may be sampled behind all of `s` is to be said when they are known.
  bool wants_mask(Sequence& s) const {
    return spec->sampling.structured_outputs ||
           (thinking && thinking->may_be_spent(s.output, s.num_generated(), s.thinking));
  }
  /// Log-probabilities that come back with each token of its prompt that runs. 0 where these are none or few.
  std::int64_t logprobs_of_prompt_token() const {
    const std::int64_t count = spec->sampling.prompt_logprobs.value_or(0);
    return next_prompt_logprob >= prompt_len() || count <= SamplingLimits{}.max_logprobs ? 0 : count + 1;
  }
  /// Tokens that may be run now: 0 while the next step depends on a result in flight or nothing is left to generate.
  std::int32_t runnable_tokens(const Sequence& s) const {
    if (s.state == SequenceState::finished || s.num_generated() >= spec->sampling.max_tokens) return 0;
    if (s.waits || s.awaits_mask || s.will_end || (s.num_placeholders > 0 && depends_on_results())) return 0;
    return length(s) - s.num_scheduled_tokens;
  }
  /// Whether it is through with what it was admitted with: what it runs then is its next token, and what is known
  /// ahead.
  bool decodes(const Sequence& s) const {
    const std::int32_t runnable = runnable_tokens(s);
    return runnable == 1 || (runnable > 1 && s.num_scheduled_tokens >= s.num_admitted_tokens);
  }
  /// Known tokens that its longest sequence of those that go on has generated.
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
  /// Rows that must be free for some of its sequences to begin.
  std::int32_t rows_wanted() const {
    return rows_reserved > 0 && !decoding->has_independent_sequences() ? 0 : decoding->num_rows(*this);
  }
  /// Whether nothing of it may come in now, since the masks of those that wait are still to be made.
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

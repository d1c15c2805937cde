#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "engine/request/request_spec.hpp"
#include "engine/sampling/beam_search.hpp"
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

/// One sequence of a request, as the scheduler sees it. Positions count from the prompt's first token.
struct Sequence {
  SequenceId id = 0;
  std::int32_t index = 0;             ///< within the request
  TokenIds output;                    ///< sampled and known
  std::int32_t num_placeholders = 0;  ///< samples of steps in flight
  SequenceState state = SequenceState::waiting;
  std::int32_t num_scheduled_tokens = 0;  ///< tokens that were planned into steps
  std::int32_t num_computed_tokens = 0;   ///< of them, those whose steps have succeeded
  std::int32_t num_reported = 0;          ///< computed tokens that the block manager was told of
  std::size_t num_reported_tokens = 0;    ///< output tokens that the block manager knows
  std::int32_t num_admitted_tokens =
      0;                   ///< of its last admission; others may share them as soon as a step is to compute them
  StepId awaits_step = 0;  ///< see AdmissionOutcome: it must be recomputed should that step fail
  std::int32_t epoch = 0;  ///< raised when its KV is thrown away; results of older epochs bring only tokens
  RowId row = -1;
  SharedTokens recompute_tokens;  ///< prompt and output, made once per preemption; null = the prompt alone
  // of beams only
  std::vector<std::pair<TokenId, float>> candidates;  ///< what may follow; empty while its result is awaited
  std::size_t num_row_tokens = 0;                     ///< output tokens that its row has been told
};

/// The search of a group that asked for it, and what to report of each token that it has kept.
///
/// The sequences of the group are its running beams, in their order. No beam runs again before all of them have their
/// result. The group starts as one sequence, the trunk: the prompt alone. After a preemption by recompute it is one
/// again: the tokens that all beams have in common. Once those are computed, the trunk forks into the beams.
struct Beams {
  explicit Beams(BeamSearchParams params) : search(std::move(params)) {}

  BeamSearch search;
  std::vector<TokenReport> reports;  ///< by BeamNode; `top` only when logprobs were asked
};

/// All sequences of one request.
struct SequenceGroup {
  SharedSpec spec;
  QueueEntry entry;
  std::vector<Sequence> sequences;  ///< one until the prompt is done, then one per sample
  std::int32_t num_in_flight = 0;   ///< steps in flight that include it
  std::int32_t rows_reserved = 0;
  bool in_running = false;  ///< listed in the running queue; likewise below
  bool in_swapped = false;
  bool in_waiting = false;
  bool forked = false;           ///< the prompt's samples (or the beams) have become sequences
  std::unique_ptr<Beams> beams;  ///< only with use_beam_search
  /// The prompt position whose logprob is to be asked of a worker next, and the first that is not known; both at the
  /// prompt's end when none are wanted.
  std::int32_t next_prompt_logprob = 0;
  std::int32_t first_unknown_prompt_logprob = 0;
  std::int32_t workers_lost = 0;  ///< workers that died while a step of it was in flight
  bool grew_too_large = false;    ///< ends with finish reason length once nothing is in flight
  TimeUs first_scheduled_us = -1;
  std::int64_t cached_tokens = 0;

  std::int32_t num_samples() const { return static_cast<std::int32_t>(spec->sampling.num_sequences()); }
  std::int32_t prompt_len() const { return static_cast<std::int32_t>(spec->prompt->size()); }
  /// Tokens of the sequence, placeholders included.
  std::int32_t length(const Sequence& s) const {
    return prompt_len() + static_cast<std::int32_t>(s.output.size()) + s.num_placeholders;
  }
  std::int64_t num_generated(const Sequence& s) const {
    return static_cast<std::int64_t>(s.output.size()) + s.num_placeholders;
  }
  /// What runs next is known only when the last result is: the group is not looked ahead.
  bool depends_on_results() const { return beams || !forked; }
  /// Tokens that may be run now: 0 while the next step depends on a result in flight or nothing is left to generate.
  std::int32_t runnable_tokens(const Sequence& s) const {
    if (s.state == SequenceState::finished || num_generated(s) >= spec->sampling.max_tokens) return 0;
    if (beams && !s.candidates.empty()) return 0;
    if (s.num_placeholders > 0 && depends_on_results()) return 0;
    return length(s) - s.num_scheduled_tokens;
  }
  /// Samples to draw when a sequence has run all its tokens: none where the trunk of a preempted search ends.
  std::int32_t num_samples_at_end() const {
    if (beams) return forked || beams->search.length() == 0 ? 1 : 0;
    return forked ? 1 : num_samples();
  }
  /// Batch rows that the group needs; a beam search may always grow to its width.
  std::int32_t num_unfinished() const {
    if (!forked || beams) return num_samples();
    std::int32_t count = 0;
    for (const Sequence& s : sequences) count += s.state == SequenceState::finished ? 0 : 1;
    return count;
  }
  bool any(SequenceState state) const {
    for (const Sequence& s : sequences) {
      if (s.state == state) return true;
    }
    return false;
  }
  bool all_finished() const {
    for (const Sequence& s : sequences) {
      if (s.state != SequenceState::finished) return false;
    }
    return true;
  }
};

}  // namespace pagoda::scheduling

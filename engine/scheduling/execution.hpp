#pragma once

/// The messages between scheduler, workers and output processor (docs/architecture.md, messages 6, 8 and 9).

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "engine/request/output.hpp"
#include "engine/request/sampling_params.hpp"
#include "engine/scheduling/plan.hpp"
#include "engine/types.hpp"

namespace pagoda {

/// What never changes during a request's life. Shared by router, scheduler, workers and output processor.
struct RequestSpec {
  RequestId id = 0;
  std::uint64_t tag = 0;    ///< the sink owner's
  SharedTokens prompt;      ///< not empty
  SamplingParams sampling;  ///< max_tokens already cut to what max_model_len leaves
  std::uint64_t seed = 0;   ///< the effective seed: the request's own or one drawn by the router
  bool stream = true;
  std::int64_t priority = 0;
  std::string user;
  std::string cache_salt;
  TimeUs arrival_us = 0;
};

using SharedSpec = std::shared_ptr<const RequestSpec>;

/// A sequence enters a worker's persistent batch. The worker keeps the row's tokens from here on: `tokens_so_far` are
/// those generated before (by a preempted or forked sequence); later ones it samples itself.
struct NewRow {
  RowId row = 0;
  SequenceId sequence = 0;
  std::int32_t sequence_index = 0;  ///< 0 .. n - 1 within the request
  SharedSpec spec;
  TokenIds tokens_so_far;
};

/// A change of a row's block table: entries from first_block on are replaced.
struct RowTableDelta {
  RowId row = 0;
  std::int32_t first_block = 0;
  Range blocks;  ///< of ExecuteStep::blocks
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
};

/// The token that the scheduler has chosen to follow the tokens of a row. Rows of beam search get theirs so, with the
/// next step that runs them; rows of other requests append what they sample.
struct ChosenToken {
  RowId row = 0;
  TokenId token = 0;
};

/// Message 6, scheduler -> workers: deltas only. Applied in the order of the fields.
struct ExecuteStep {
  StepId step = 0;
  bool wait_for_cache = false;  ///< a CachePlan exists: CacheReady of this step must come first
  std::vector<RowId> rows_gone;
  std::vector<NewRow> new_rows;
  std::vector<ChosenToken> chosen_tokens;
  std::vector<RowTableDelta> table_deltas;
  std::vector<BlockId> blocks;
  std::vector<RowWork> work;
};

/// One token sampled for one sequence.
struct SampleResult {
  SequenceId sequence = 0;
  std::int32_t sample = 0;  ///< 0 .. num_samples - 1 of its RowWork
  TokenId token = 0;
  float logprob = 0;
  std::int32_t rank = 0;
  /// The likeliest tokens, best first: when logprobs were asked, and for beam search its candidates.
  std::vector<std::pair<TokenId, float>> top;
};

/// What the model thought of one token that it did not draw: of a prompt, or of a beam.
struct TokenReport {
  TokenId token = 0;
  float logprob = 0;
  std::int32_t rank = 0;
  std::vector<std::pair<TokenId, float>> top;
};

/// A request whose logits or parameters leave no token to sample. Its samples and reports are in their places, and mean
/// nothing.
struct WorkFailure {
  SequenceId sequence = 0;
  Error error;
};

/// Message 8, worker -> scheduler. `error` fails every sequence of the step, `failures` one each.
struct StepResult {
  StepId step = 0;
  std::vector<SampleResult> samples;         ///< in the order of ExecuteStep::work
  std::vector<TokenReport> prompt_logprobs;  ///< likewise
  std::vector<WorkFailure> failures;
  std::optional<Error> error;
  TimeUs started_us = 0;   ///< when the device began the step
  TimeUs finished_us = 0;  ///< when it ended
};

/// New tokens of one sequence, and its end when ids tell it.
struct SequenceOutput {
  RequestId request = 0;
  std::int32_t sequence_index = 0;
  TokenId token = 0;
  bool has_token = true;  ///< false: only the end is told
  float logprob = 0;
  std::int32_t rank = 0;
  std::vector<std::pair<TokenId, float>> top;
  std::optional<FinishReason> finished;
  std::optional<TokenId> stop_token;  ///< the eos or stop id that ended it
};

/// The next prompt tokens of a request that asked for prompt_logprobs; in order, from its second token on.
struct PromptLogprobsOutput {
  RequestId request = 0;
  std::vector<TokenReport> tokens;
};

/// The end of a request that produced nothing more: aborted, refused after admission, or failed.
struct RequestEnd {
  RequestId request = 0;
  std::optional<Error> error;  ///< absent: aborted
};

/// Facts the output processor reports with the end of a request.
struct RequestStarted {
  RequestId request = 0;
  TimeUs first_scheduled_us = 0;
  std::int64_t cached_tokens = 0;
};

/// Message 9, scheduler -> output processor.
struct StepOutputs {
  StepId step = 0;
  TimeUs finished_us = 0;
  std::vector<RequestStarted> started;
  std::vector<PromptLogprobsOutput> prompt_logprobs;
  std::vector<SequenceOutput> outputs;
  std::vector<RequestEnd> ends;
};

/// Message 11, output processor -> scheduler: a stop string ended the sequence.
struct StopHit {
  RequestId request = 0;
  std::int32_t sequence_index = 0;
};

/// Cache engine -> scheduler: what the swaps of one plan took.
struct SwapMeasured {
  std::int64_t bytes = 0;  ///< out and in together
  TimeUs duration_us = 0;
};

}  // namespace pagoda

#pragma once

/// The result of a step (docs/architecture/step.md, message 8).

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "engine/step/plan.hpp"
#include "engine/types.hpp"
#include "kernels/result.hpp"

namespace pagoda {

/// A token that was sampled, or a prompt token, with its log-probability.
struct TokenReport {
  TokenId token = 0;
  float logprob = 0;
  std::int32_t rank = 0;  ///< 1 = the most likely
  /// The likeliest tokens, best first: filled when logprobs are requested; for beam search these are its candidates.
  std::vector<std::pair<TokenId, float>> top;

  static constexpr auto visit_fields(auto& self, auto&& visit) {
    return visit(self.token, self.logprob, self.rank, self.top);
  }
};

/// The result of one RowWork.
struct RowResult {
  SequenceId sequence = 0;
  /// Number of the sequence's tokens whose KV is computed now, without wrong drafts.
  std::int32_t num_computed_tokens = 0;
  /// Range of StepResult::samples: RowWork::num_samples entries, and one more for each correct draft.
  Range samples;
  Range prompt_logprobs;  ///< range of StepResult::prompt_logprobs
  /// Index into StepResult::row_errors, set when the logits or parameters of the row left no token to sample. Its
  /// samples and reports are present, but have no meaning. -1 = no error.
  std::int32_t error = -1;

  static constexpr auto visit_fields(auto& self, auto&& visit) {
    return visit(self.sequence, self.num_computed_tokens, self.samples, self.prompt_logprobs, self.error);
  }
};

/// Message 8, worker -> scheduler.
struct StepResult {
  StepId step = 0;
  std::vector<RowResult> rows;  ///< one for each ExecuteStep::work, in its order; empty with `error`
  std::vector<TokenReport> samples;
  std::vector<TokenReport> prompt_logprobs;
  std::vector<Error> row_errors;
  std::optional<Error> error;  ///< set when nothing of the step was computed
  TimeUs started_us = 0;       ///< time when the device began the step
  TimeUs finished_us = 0;      ///< time when the device ended the step

  static constexpr auto visit_fields(auto& self, auto&& visit) {
    return visit(self.step, self.rows, self.samples, self.prompt_logprobs, self.row_errors, self.error, self.started_us,
                 self.finished_us);
  }
};

/// Cache engine -> scheduler: size and duration of the swaps of one plan.
struct SwapMeasured {
  std::int64_t bytes = 0;  ///< bytes moved out and in together
  TimeUs duration_us = 0;

  static constexpr auto visit_fields(auto& self, auto&& visit) { return visit(self.bytes, self.duration_us); }
};

}  // namespace pagoda

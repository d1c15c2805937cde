#pragma once

/// What a step has brought (docs/architecture/step.md, message 8).

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "engine/step/plan.hpp"
#include "engine/types.hpp"
#include "kernels/result.hpp"

namespace pagoda {

/// A token, sampled or of a prompt, and what the model thought of it.
struct TokenReport {
  TokenId token = 0;
  float logprob = 0;
  std::int32_t rank = 0;  ///< 1 = the most likely
  /// The likeliest tokens, best first: when logprobs were asked, and for beam search its candidates.
  std::vector<std::pair<TokenId, float>> top;

  static constexpr auto visit_fields(auto& self, auto&& visit) {
    return visit(self.token, self.logprob, self.rank, self.top);
  }
};

/// What one RowWork has brought.
struct RowResult {
  SequenceId sequence = 0;
  std::int32_t num_computed_tokens = 0;  ///< tokens of the sequence whose KV is computed now, without wrong drafts
  Range samples;  ///< of StepResult::samples: RowWork::num_samples of them, and one for each draft that was sampled so
  Range prompt_logprobs;  ///< of StepResult::prompt_logprobs
  /// Of StepResult::row_errors, when its logits or parameters left no token to sample: its samples and reports are in
  /// their places, and mean nothing. -1 = none.
  std::int32_t error = -1;

  static constexpr auto visit_fields(auto& self, auto&& visit) {
    return visit(self.sequence, self.num_computed_tokens, self.samples, self.prompt_logprobs, self.error);
  }
};

/// Message 8, worker -> scheduler.
struct StepResult {
  StepId step = 0;
  std::vector<RowResult> rows;  ///< one for each ExecuteStep::work, in its order; none with `error`
  std::vector<TokenReport> samples;
  std::vector<TokenReport> prompt_logprobs;
  std::vector<Error> row_errors;
  std::optional<Error> error;  ///< nothing of the step was computed
  TimeUs started_us = 0;       ///< when the device began the step
  TimeUs finished_us = 0;      ///< when it ended

  static constexpr auto visit_fields(auto& self, auto&& visit) {
    return visit(self.step, self.rows, self.samples, self.prompt_logprobs, self.row_errors, self.error, self.started_us,
                 self.finished_us);
  }
};

/// Cache engine -> scheduler: what the swaps of one plan took.
struct SwapMeasured {
  std::int64_t bytes = 0;  ///< out and in together
  TimeUs duration_us = 0;

  static constexpr auto visit_fields(auto& self, auto&& visit) { return visit(self.bytes, self.duration_us); }
};

}  // namespace pagoda

#pragma once

/// The result of a step (docs/architecture/step.md, message 8).

#include <cstdint>
#include <optional>
#include <utility>
#include <variant>
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

/// The tokens that a row has sampled.
struct RowTokens {
  /// Range of StepResult::samples: RowWork::num_samples entries, and one more for each correct draft.
  Range samples;

  static constexpr auto visit_fields(auto& self, auto&& visit) { return visit(self.samples); }
};

/// The output of one RowWork: tokens, or an error if the logits or parameters of the row left no token to sample. A
/// model with other outputs than tokens adds its alternative here.
using RowOutput = std::variant<RowTokens, Error>;

/// The result of one RowWork.
struct RowResult {
  SequenceId sequence = 0;
  /// Number of the sequence's tokens whose KV is computed now, without wrong drafts. It has no meaning beside an error.
  std::int32_t num_computed_tokens = 0;
  RowOutput output;
  Range prompt_logprobs;  ///< range of StepResult::prompt_logprobs; these have no meaning beside an error

  static constexpr auto visit_fields(auto& self, auto&& visit) {
    return visit(self.sequence, self.num_computed_tokens, self.output, self.prompt_logprobs);
  }

  /// Returns the error of the row; null if it has none.
  const Error* error() const { return std::get_if<Error>(&output); }
  /// Returns the range of StepResult::samples that the row has sampled; an empty range if it has an error.
  Range samples() const {
    const auto* tokens = std::get_if<RowTokens>(&output);
    return tokens == nullptr ? Range() : tokens->samples;
  }
};

/// Message 8, worker -> scheduler.
struct StepResult {
  StepId step = 0;
  std::vector<RowResult> rows;  ///< one for each ExecuteStep::work, in its order; empty with `error`
  std::vector<TokenReport> samples;
  std::vector<TokenReport> prompt_logprobs;
  std::optional<Error> error;  ///< set when nothing of the step was computed
  TimeUs started_us = 0;       ///< time when the device began the step
  TimeUs finished_us = 0;      ///< time when the device ended the step
  TimeUs draft_us = 0;         ///< time of this that the draft model's runs took
  RankId rank = 0;             ///< rank of the device in its group

  static constexpr auto visit_fields(auto& self, auto&& visit) {
    return visit(self.step, self.rows, self.samples, self.prompt_logprobs, self.error, self.started_us,
                 self.finished_us, self.draft_us, self.rank);
  }
};

/// Cache engine -> scheduler: size and duration of the swaps of one plan.
struct SwapMeasured {
  std::int64_t bytes = 0;  ///< bytes moved out and in together
  TimeUs duration_us = 0;

  static constexpr auto visit_fields(auto& self, auto&& visit) { return visit(self.bytes, self.duration_us); }
};

}  // namespace pagoda

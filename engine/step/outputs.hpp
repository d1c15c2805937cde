#pragma once

/// The outputs of a step for the requests (docs/architecture/step.md, messages 9 and 11).

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "engine/step/result.hpp"
#include "engine/types.hpp"
#include "kernels/result.hpp"

namespace pagoda {

/// Reasons in order from the best to the worst.
enum class FinishReason : std::uint8_t { stop, length, abort };
constexpr FinishReason last_value(FinishReason) {
  return FinishReason::abort;
}

constexpr std::string_view to_string(FinishReason reason) {
  switch (reason) {
    case FinishReason::stop:
      return "stop";
    case FinishReason::length:
      return "length";
    case FinishReason::abort:
      return "abort";
  }
  return "abort";
}

/// The next token of one sequence, and its end when token ids determine it.
struct SequenceOutput {
  RequestId request = 0;
  std::int32_t sequence_index = 0;
  std::optional<TokenReport> token;  ///< absent = this output only reports the end
  std::optional<FinishReason> finished;
  std::optional<TokenId> stop_token;  ///< stop token that ended the sequence

  static constexpr auto visit_fields(auto& self, auto&& visit) {
    return visit(self.request, self.sequence_index, self.token, self.finished, self.stop_token);
  }
};

/// The next prompt tokens of a request with prompt_logprobs, in order, from the second prompt token on.
struct PromptLogprobsOutput {
  RequestId request = 0;
  std::vector<TokenReport> tokens;

  static constexpr auto visit_fields(auto& self, auto&& visit) { return visit(self.request, self.tokens); }
};

/// The end of a request that gets no more tokens: it was aborted, refused after admission, or has failed.
struct RequestEnd {
  RequestId request = 0;
  std::optional<Error> error;  ///< absent = aborted

  static constexpr auto visit_fields(auto& self, auto&& visit) { return visit(self.request, self.error); }
};

/// Facts that the output processor reports at the end of a request.
struct RequestStarted {
  RequestId request = 0;
  TimeUs first_scheduled_us = 0;
  std::int64_t cached_tokens = 0;

  static constexpr auto visit_fields(auto& self, auto&& visit) {
    return visit(self.request, self.first_scheduled_us, self.cached_tokens);
  }
};

/// The reason why a running request must compute tokens again, or wait for memory.
enum class Interruption : std::uint8_t {
  preempted,  ///< other requests took its memory; it is recomputed or swapped
  restarted,  ///< a device was replaced, or a step failed whose KV the request uses
};
constexpr Interruption last_value(Interruption) {
  return Interruption::restarted;
}

/// Reported once for all sequences of a request.
struct RequestInterrupted {
  RequestId request = 0;
  Interruption what = Interruption::preempted;

  static constexpr auto visit_fields(auto& self, auto&& visit) { return visit(self.request, self.what); }
};

/// The draft tokens of one row of a step. The row samples them again, and the first ones are accepted.
struct RowDrafts {
  RequestId request = 0;
  std::int32_t num_drafts = 0;
  std::int32_t num_accepted = 0;

  static constexpr auto visit_fields(auto& self, auto&& visit) {
    return visit(self.request, self.num_drafts, self.num_accepted);
  }
};

/// Message 9, scheduler -> output processor.
struct StepOutputs {
  StepId step = 0;
  TimeUs finished_us = 0;
  std::vector<RequestStarted> started;
  std::vector<RequestInterrupted> interrupted;
  std::vector<RowDrafts> drafts;  ///< of the rows that had drafts
  std::vector<PromptLogprobsOutput> prompt_logprobs;
  std::vector<SequenceOutput> outputs;
  std::vector<RequestEnd> ends;

  static constexpr auto visit_fields(auto& self, auto&& visit) {
    return visit(self.step, self.finished_us, self.started, self.interrupted, self.drafts, self.prompt_logprobs,
                 self.outputs, self.ends);
  }
  bool empty() const {
    return started.empty() && interrupted.empty() && drafts.empty() && prompt_logprobs.empty() && outputs.empty() &&
           ends.empty();
  }
};

/// Message 11, output processor -> scheduler: a stop string ended the sequence.
struct StopHit {
  RequestId request = 0;
  std::int32_t sequence_index = 0;

  static constexpr auto visit_fields(auto& self, auto&& visit) { return visit(self.request, self.sequence_index); }
};

}  // namespace pagoda

#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "engine/request/logprobs.hpp"
#include "engine/step/outputs.hpp"
#include "engine/types.hpp"
#include "kernels/result.hpp"

namespace pagoda {

/// New text and tokens of one sequence. Text always consists of whole UTF-8 characters.
struct SequenceDelta {
  std::int32_t index = 0;
  std::string text;
  TokenIds token_ids;
  Logprobs logprobs = Logprobs();  ///< one entry for each token id if logprobs are requested
  bool ended = false;              ///< whether it is the last delta of its sequence

  static constexpr auto visit_fields(auto& self, auto&& visit) {
    return visit(self.index, self.text, self.token_ids, self.logprobs, self.ended);
  }
};

/// The end of one sequence, with its whole output.
struct SequenceResult {
  std::int32_t index = 0;
  std::string text;
  TokenIds token_ids;
  /// Length of `text` in bytes after each token. Text behind the last of these lengths was held back until the end.
  std::vector<std::uint64_t> text_ends;
  FinishReason finish_reason = FinishReason::abort;
  std::variant<std::monostate, TokenId, std::string> stop_reason;  ///< token or string that ended the sequence
  /// Sum over the tokens; set if logprobs are requested, or if it ranks the outputs.
  std::optional<double> cumulative_logprob;
  std::optional<Logprobs> logprobs;

  static constexpr auto visit_fields(auto& self, auto&& visit) {
    return visit(self.index, self.text, self.token_ids, self.text_ends, self.finish_reason, self.stop_reason,
                 self.cumulative_logprob, self.logprobs);
  }
};

struct Usage {
  std::int64_t prompt_tokens = 0;
  std::int64_t completion_tokens = 0;
  std::int64_t cached_tokens = 0;  ///< number of prompt tokens whose KV came from the prefix cache

  static constexpr auto visit_fields(auto& self, auto&& visit) {
    return visit(self.prompt_tokens, self.completion_tokens, self.cached_tokens);
  }
};

/// Times of a request, and the reasons for them.
struct Timing {
  double queue_ms = 0;  ///< from arrival to the first step
  double ttft_ms = 0;   ///< from arrival to the first token
  double total_ms = 0;  ///< from arrival to this event
  /// Number of prompt tokens that the prefix cache did not have when the request began to run.
  std::int64_t cache_miss = 0;
  /// Number of times that other requests took its memory, by recompute or by swap.
  std::int64_t preemptions = 0;
  /// Number of times that it was computed again after a device was replaced or a step failed.
  std::int64_t restarts = 0;
  /// Number of draft tokens that ran, in all sequences, and number of those that were accepted.
  std::int64_t draft_tokens = 0;
  std::int64_t drafts_accepted = 0;

  static constexpr auto visit_fields(auto& self, auto&& visit) {
    return visit(self.queue_ms, self.ttft_ms, self.total_ms, self.cache_miss, self.preemptions, self.restarts,
                 self.draft_tokens, self.drafts_accepted);
  }
};

/// The end of a request, with all sequences that it returns.
struct RequestResult {
  std::vector<SequenceResult> outputs;
  std::optional<Logprobs> prompt_logprobs;  ///< entries for the prompt's tokens from the second token on
  Usage usage;
  Timing timing;

  static constexpr auto visit_fields(auto& self, auto&& visit) {
    return visit(self.outputs, self.prompt_logprobs, self.usage, self.timing);
  }
};

/// The output of one step for one request. `done` and `error` are terminal: each request ends with exactly one of them,
/// and nothing follows it.
struct RequestOutput {
  RequestId request_id = 0;
  std::uint64_t tag = 0;  ///< chosen by the sink's owner at submission, and returned here
  std::vector<SequenceDelta> deltas;
  std::optional<RequestResult> done;
  std::optional<Error> error;

  static constexpr auto visit_fields(auto& self, auto&& visit) {
    return visit(self.request_id, self.tag, self.deltas, self.done, self.error);
  }
};

/// One message for each sink and step.
struct OutputBatch {
  std::vector<RequestOutput> outputs;
};

}  // namespace pagoda

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

/// New text and tokens of one sequence. Text is always whole UTF-8 characters.
struct SequenceDelta {
  std::int32_t index = 0;
  std::string text;
  TokenIds token_ids;
  Logprobs logprobs = Logprobs();  ///< one entry for each token id when logprobs were asked
  bool ended = false;              ///< it is the sequence's last

  static constexpr auto visit_fields(auto& self, auto&& visit) {
    return visit(self.index, self.text, self.token_ids, self.logprobs, self.ended);
  }
};

/// The end of one sequence, with everything it produced.
struct SequenceResult {
  std::int32_t index = 0;
  std::string text;
  TokenIds token_ids;
  /// How much of `text` there was, in bytes, when each of the tokens had come. The rest, if any, was held back until
  /// the end.
  std::vector<std::uint64_t> text_ends;
  FinishReason finish_reason = FinishReason::abort;
  std::variant<std::monostate, TokenId, std::string> stop_reason;  ///< the stop token id or stop string that ended it
  std::optional<double> cumulative_logprob;  ///< sum over the tokens; when logprobs were asked or it chose the output
  std::optional<Logprobs> logprobs;

  static constexpr auto visit_fields(auto& self, auto&& visit) {
    return visit(self.index, self.text, self.token_ids, self.text_ends, self.finish_reason, self.stop_reason,
                 self.cumulative_logprob, self.logprobs);
  }
};

struct Usage {
  std::int64_t prompt_tokens = 0;
  std::int64_t completion_tokens = 0;
  std::int64_t cached_tokens = 0;  ///< prompt tokens whose KV came from the prefix cache

  static constexpr auto visit_fields(auto& self, auto&& visit) {
    return visit(self.prompt_tokens, self.completion_tokens, self.cached_tokens);
  }
};

/// Why a request took as long as it did.
struct Timing {
  double queue_ms = 0;           ///< arrival to first step
  double ttft_ms = 0;            ///< arrival to first token
  double total_ms = 0;           ///< arrival to this event
  std::int64_t cache_miss = 0;   ///< prompt tokens that the prefix cache did not have when the request began to run
  std::int64_t preemptions = 0;  ///< times that others took its memory, by recompute or by swap
  std::int64_t restarts = 0;     ///< times that it was computed again since a device was replaced or a step had failed

  static constexpr auto visit_fields(auto& self, auto&& visit) {
    return visit(self.queue_ms, self.ttft_ms, self.total_ms, self.cache_miss, self.preemptions, self.restarts);
  }
};

/// The end of a request, with every sequence it returns.
struct RequestResult {
  std::vector<SequenceResult> outputs;
  std::optional<Logprobs> prompt_logprobs;  ///< of the prompt's tokens from the second on
  Usage usage;
  Timing timing;

  static constexpr auto visit_fields(auto& self, auto&& visit) {
    return visit(self.outputs, self.prompt_logprobs, self.usage, self.timing);
  }
};

/// What one step gave one request. `done` and `error` are terminal: exactly one of them ends each request, and nothing
/// follows it.
struct RequestOutput {
  RequestId request_id = 0;
  std::uint64_t tag = 0;  ///< chosen by the sink's owner at submission, echoed here
  std::vector<SequenceDelta> deltas;
  std::optional<RequestResult> done;
  std::optional<Error> error;

  static constexpr auto visit_fields(auto& self, auto&& visit) {
    return visit(self.request_id, self.tag, self.deltas, self.done, self.error);
  }
};

/// One message per sink and step.
struct OutputBatch {
  std::vector<RequestOutput> outputs;
};

}  // namespace pagoda

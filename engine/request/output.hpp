#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "engine/step/outputs.hpp"
#include "engine/types.hpp"
#include "kernels/result.hpp"

namespace pagoda {

/// One candidate of a logprobs entry. `token` is the token's text alone (bytes that are no UTF-8 are replaced).
struct TokenLogprob {
  TokenId token_id = 0;
  float logprob = 0;
  std::string token;
  std::string partial_bytes = {};  ///< bytes of the token, where they are not whole characters; else empty

  static constexpr auto visit_fields(auto& self, auto&& visit) {
    return visit(self.token_id, self.logprob, self.token, self.partial_bytes);
  }
};

/// Log-probabilities at one position, of the model's distribution before temperature and truncation.
struct LogprobEntry {
  TokenId token_id = 0;
  float logprob = 0;
  std::int32_t rank = 0;  ///< 1 = the most likely token
  std::string token;
  std::vector<TokenLogprob> top = {};  ///< the k best, best first
  std::string partial_bytes = {};      ///< as in TokenLogprob
  /// Number of characters in front of the token in the text of its sequence, or of its prompt; a stop string that ends
  /// the text counts. Of the tokens that make one character all have the place of that character.
  std::int64_t text_offset = 0;

  static constexpr auto visit_fields(auto& self, auto&& visit) {
    return visit(self.token_id, self.logprob, self.rank, self.token, self.top, self.partial_bytes, self.text_offset);
  }
};

/// The bytes of the token of a LogprobEntry or TokenLogprob; those of tokens in a row make the text.
template <class Entry>
const std::string& bytes_of(const Entry& entry) {
  return entry.partial_bytes.empty() ? entry.token : entry.partial_bytes;
}

/// New text and tokens of one sequence. Text is always whole UTF-8 characters.
struct SequenceDelta {
  std::int32_t index = 0;
  std::string text;
  TokenIds token_ids;
  std::vector<LogprobEntry> logprobs;  ///< one per token id when logprobs were asked
  bool ended = false;                  ///< it is the sequence's last

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
  std::optional<std::vector<LogprobEntry>> logprobs;

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
  std::optional<std::vector<std::optional<LogprobEntry>>> prompt_logprobs;  ///< first entry is empty
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

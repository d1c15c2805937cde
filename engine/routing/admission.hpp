#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "engine/request/generate_request.hpp"
#include "engine/request/output.hpp"
#include "engine/request/request_spec.hpp"
#include "engine/types.hpp"

namespace pagoda::routing {

/// What the router must know of the engine to refuse a request before anything is allocated.
struct AdmissionLimits {
  std::int64_t vocab_size = 0;
  std::vector<TokenId> eos_token_ids;
  std::int64_t max_model_len = 0;        ///< tokens of prompt and output together
  std::int64_t max_kv_tokens = 0;        ///< that the KV cache can take of one prompt
  std::int32_t max_num_seqs = 0;         ///< batch rows: the widest beam search
  std::int64_t max_queued_requests = 0;  ///< live requests
  std::int64_t max_queued_prompt_tokens = 0;
  std::int64_t max_queued_prompt_bytes = 64 << 20;  ///< texts that wait for the tokenizer (TokenizerQueue)
  std::optional<std::int64_t> max_bytes_per_token;  ///< of text, as the tokenizer tells it
  SamplingLimits sampling;
  SamplingDefaults defaults;  ///< of the model, for fields that a client left open
  std::uint64_t seed = 0;     ///< of requests that bring none
  std::int32_t num_replicas = 1;
  bool knows_thinking = false;          ///< thinking_token_budget is supported
  std::int64_t default_timeout_ms = 0;  ///< of requests that bring none; 0: they may take for ever
  std::int64_t target_ttft_ms = 0;      ///< whose first token would come later are refused; 0: none is
  std::int64_t stream_interval = 1;     ///< the least stream_interval of a request

  static constexpr auto visit_fields(auto& self, auto&& visit) {
    return visit(self.vocab_size, self.eos_token_ids, self.max_model_len, self.max_kv_tokens, self.max_num_seqs,
                 self.max_queued_requests, self.max_queued_prompt_tokens, self.max_queued_prompt_bytes,
                 self.max_bytes_per_token, self.sampling, self.defaults, self.seed, self.num_replicas,
                 self.knows_thinking, self.default_timeout_ms, self.target_ttft_ms, self.stream_interval);
  }
};

/// Whose request it is.
struct Arrival {
  RequestId id = 0;
  std::uint64_t tag = 0;
  TimeUs at_us = 0;

  static constexpr auto visit_fields(auto& self, auto&& visit) { return visit(self.id, self.tag, self.at_us); }
};

/// Whether the request goes on from an engine in which it has ended: only its end is still to be sent.
inline bool has_ended(const GenerateRequest& request) {
  return request.progress && request.progress->has_ended() && request.prompt_token_ids;
}

/// Everything that can be told before the prompt is tokenized.
/// Errors: invalid_request (param = the field), context_too_long.
Status check_request(const GenerateRequest& request, const AdmissionLimits& limits);

/// How many tokens of its prompt a request wants to keep (truncate_prompt_tokens); absent: all.
std::optional<std::int64_t> prompt_tokens_kept(const GenerateRequest& request, const AdmissionLimits& limits);

/// What the engine runs: defaults filled in, the prompt truncated, max_tokens cut, seed chosen. `prompt` and
/// `bad_words` are what the tokenizer, or the client, gave. Errors: the prompt's own, invalid_request,
/// context_too_long; param = the field of the prompt, or bad_words, or prompt_logprobs.
Result<SharedSpec> make_spec(const Arrival& arrival, const GenerateRequest& request, Result<TokenIds> prompt,
                             const AdmissionLimits& limits, std::vector<TokenIds> bad_words = {});

/// How a request ends that is aborted before its prompt is tokenized: n outputs without tokens.
RequestResult result_before_start(const Arrival& arrival, const GenerateRequest& request, TimeUs now,
                                  const AdmissionLimits& limits);

}  // namespace pagoda::routing

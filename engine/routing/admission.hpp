#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "engine/request/generate_request.hpp"
#include "engine/request/output.hpp"
#include "engine/request/request_spec.hpp"
#include "engine/types.hpp"

namespace pagoda::routing {

/// The facts about the engine by which the router can refuse a request before anything is allocated.
struct AdmissionLimits {
  std::int64_t vocab_size = 0;
  std::vector<TokenId> eos_token_ids;
  std::int64_t max_model_len = 0;        ///< number of tokens of prompt and output together
  std::int64_t max_kv_tokens = 0;        ///< number of tokens of one prompt that the KV cache has room for
  std::int32_t max_num_seqs = 0;         ///< number of batch rows: the maximum width of a beam search
  std::int64_t max_queued_requests = 0;  ///< number of live requests
  std::int64_t max_queued_prompt_tokens = 0;
  /// Bytes of texts that wait for the tokenizer (TokenizerQueue).
  std::int64_t max_queued_prompt_bytes = 64 << 20;
  std::optional<std::int64_t> max_bytes_per_token;  ///< bytes of text, as the tokenizer reports it
  SamplingLimits sampling;
  SamplingDefaults defaults;  ///< the model's values for fields that a client left open
  std::uint64_t seed = 0;     ///< seed for requests that state none
  std::int32_t num_replicas = 1;
  bool knows_thinking = false;          ///< whether thinking_token_budget is supported
  std::int64_t default_timeout_ms = 0;  ///< for requests that state none; 0 = no timeout
  /// Requests whose first token would come later are refused; 0 = none is refused.
  std::int64_t target_ttft_ms = 0;
  std::int64_t stream_interval = 1;  ///< minimum stream_interval of a request
  bool has_adapters = false;         ///< whether requests may name adapters

  static constexpr auto visit_fields(auto& self, auto&& visit) {
    return visit(self.vocab_size, self.eos_token_ids, self.max_model_len, self.max_kv_tokens, self.max_num_seqs,
                 self.max_queued_requests, self.max_queued_prompt_tokens, self.max_queued_prompt_bytes,
                 self.max_bytes_per_token, self.sampling, self.defaults, self.seed, self.num_replicas,
                 self.knows_thinking, self.default_timeout_ms, self.target_ttft_ms, self.stream_interval,
                 self.has_adapters);
  }
};

/// The identity of a request and the time of its arrival.
struct Arrival {
  RequestId id = 0;
  std::uint64_t tag = 0;
  TimeUs at_us = 0;

  static constexpr auto visit_fields(auto& self, auto&& visit) { return visit(self.id, self.tag, self.at_us); }
};

/// Returns whether the request continues from an engine in which it has ended: only its end must still be sent.
inline bool has_ended(const GenerateRequest& request) {
  return request.progress && request.progress->has_ended() && request.prompt_token_ids;
}

/// Makes all checks that are possible before the prompt is tokenized. Errors: invalid_request (param = the field),
/// context_too_long, unknown_adapter (the engine has none), unsupported (thinking_token_budget).
Status check_request(const GenerateRequest& request, const AdmissionLimits& limits);

/// Returns the number of prompt tokens that a request wants to keep (truncate_prompt_tokens); absent = all.
std::optional<std::int64_t> prompt_tokens_kept(const GenerateRequest& request, const AdmissionLimits& limits);

/// Makes the spec that the engine runs: defaults are filled in, the prompt is truncated, max_tokens is limited, a seed
/// is chosen. `prompt` and `bad_words` come from the tokenizer or the client. Errors: the prompt's own,
/// invalid_request, context_too_long; param = the field of the prompt, or bad_words, prompt_logprobs or logprobs.
Result<SharedSpec> make_spec(const Arrival& arrival, const GenerateRequest& request, Result<TokenIds> prompt,
                             const AdmissionLimits& limits, std::vector<TokenIds> bad_words = {});

/// Returns a spec of make_spec with its adapter. The adapter's virtual tokens come in front of the prompt: they count
/// for the context, and leave less room for truncate_prompt_tokens -1 and max_tokens. Errors: context_too_long.
Result<SharedSpec> with_adapter(const RequestSpec& spec, const GenerateRequest& request, const AdapterRef& adapter,
                                const AdmissionLimits& limits);

/// Returns the result of a request that is aborted before its prompt is tokenized: n outputs without tokens.
RequestResult result_before_start(const Arrival& arrival, const GenerateRequest& request, TimeUs now,
                                  const AdmissionLimits& limits);

}  // namespace pagoda::routing

#include "io/wire/request_fields.hpp"

#include <cmath>
#include <string>

#include "io/wire/foreign_fields.hpp"
#include "io/wire/structured_fields.hpp"

namespace pagoda::wire {
namespace {

/// Reads the timeout, in seconds from `timeout` or in milliseconds from `timeout_ms`.
void read_timeout(FieldReader& fields, std::optional<std::int64_t>& timeout_ms) {
  const bool has_seconds = fields.has("timeout");
  fields.read("timeout_ms", timeout_ms);
  double seconds = 0;
  fields.read("timeout", seconds);
  if (!has_seconds) return;
  if (fields.has("timeout_ms")) return fields.refuse("timeout", "give either timeout or timeout_ms, not both");
  constexpr double kMaxSeconds = static_cast<double>(kMaxTimeoutMs) / 1000;
  if (!(seconds > 0 && seconds <= kMaxSeconds)) {
    return fields.refuse("timeout",
                         "timeout must be above 0 and at most " + std::to_string(kMaxTimeoutMs / 1000) + " seconds");
  }
  timeout_ms = std::llround(std::ceil(seconds * 1000));
}

/// Reads a seed. A seed below 0 becomes the unsigned number with the same 64 bits.
void read_seed(FieldReader& fields, std::optional<std::uint64_t>& seed, Ranges ranges) {
  const auto* value = fields.find("seed");
  const bool is_negative = value != nullptr && value->is_number_integer() && !value->is_number_unsigned();
  if (ranges == Ranges::apis && is_negative) {
    seed = static_cast<std::uint64_t>(value->get<std::int64_t>());
  } else {
    fields.read("seed", seed);
  }
}

}  // namespace

void read_request_fields(FieldReader& fields, GenerateRequest& request, Ranges ranges) {
  fields.read("add_special_tokens", request.add_special_tokens);
  fields.read("truncate_prompt_tokens", request.truncate_prompt_tokens);
  fields.read("priority", request.priority);
  fields.read("user", request.user);
  fields.read("cache_salt", request.cache_salt);
  read_timeout(fields, request.timeout_ms);
  fields.read("resumable", request.resumable);

  auto& sampling = request.sampling;
  read_open(fields, "temperature", sampling.temperature, request.open.temperature);
  read_open(fields, "top_p", sampling.top_p, request.open.top_p);
  if (ranges == Ranges::apis && sampling.top_p == 0) sampling.top_p = kMinTopP;
  read_open(fields, "top_k", sampling.top_k, request.open.top_k);
  read_open(fields, "min_p", sampling.min_p, request.open.min_p);
  read_open(fields, "repetition_penalty", sampling.repetition_penalty, request.open.repetition_penalty);
  fields.read("min_tokens", sampling.min_tokens);
  fields.read("n", sampling.n);
  fields.read("best_of", sampling.best_of);
  read_seed(fields, sampling.seed, ranges);
  fields.read_strings("stop", sampling.stop);
  fields.read("stop_token_ids", sampling.stop_token_ids);
  fields.read("ignore_eos", sampling.ignore_eos);
  fields.read("include_stop_str_in_output", sampling.include_stop_str_in_output);
  fields.read("presence_penalty", sampling.presence_penalty);
  fields.read("frequency_penalty", sampling.frequency_penalty);
  fields.read("repeat_last_n", sampling.repeat_last_n);
  fields.read_bias("logit_bias", sampling.logit_bias);
  fields.read_strings("bad_words", sampling.bad_words);
  fields.read("allowed_token_ids", sampling.allowed_token_ids);
  if (ranges == Ranges::apis && sampling.allowed_token_ids && sampling.allowed_token_ids->empty()) {
    sampling.allowed_token_ids.reset();
  }
  fields.read("prompt_logprobs", sampling.prompt_logprobs);
  fields.read("logprob_token_ids", sampling.logprob_token_ids);
  fields.read("detokenize", sampling.detokenize);
  fields.read("skip_special_tokens", sampling.skip_special_tokens);
  fields.read("spaces_between_special_tokens", sampling.spaces_between_special_tokens);
  fields.read("stream_interval", sampling.stream_interval);
  refuse_unless(fields, "prompt_embeds", {Json::array()}, ": this server accepts texts and token ids only");
  fields.read("use_beam_search", sampling.use_beam_search);
  fields.read("length_penalty", sampling.length_penalty);
  fields.read("early_stopping", sampling.early_stopping);
  read_structured_outputs(fields, sampling.structured_outputs);
  fields.read("thinking_token_budget", sampling.thinking_token_budget);
  fields.read("speculation", sampling.speculation);
}

void read_api_fields(FieldReader& fields, GenerateRequest& request) {
  read_request_fields(fields, request, Ranges::apis);
  read_foreign_fields(fields, request);
}

void read_single_answer_fields(FieldReader& fields, GenerateRequest& request) {
  read_api_fields(fields, request);
  if (request.sampling.n != 1) fields.refuse("n", "n must be 1: the answer is one message");
  if (!request.sampling.detokenize) fields.refuse("detokenize", "detokenize must be true: the answer is read as text");
  if (request.sampling.prompt_logprobs) {
    fields.refuse("prompt_logprobs", "prompt_logprobs is not supported: the answer cannot carry them");
  }
}

}  // namespace pagoda::wire

#include "engine/routing/admission.hpp"

#include <algorithm>
#include <iterator>
#include <memory>
#include <span>
#include <string>
#include <utility>

#include "engine/text/literals.hpp"
#include "kernels/random.hpp"

namespace pagoda::routing {
namespace {

/// Returns the seed of a request that states none: a random number of the engine for each request id.
std::uint64_t derived_seed(std::uint64_t engine_seed, RequestId id) {
  const auto words =
      kernels::philox4x32({static_cast<std::uint32_t>(id), static_cast<std::uint32_t>(id >> 32), 0, 1},
                          {static_cast<std::uint32_t>(engine_seed), static_cast<std::uint32_t>(engine_seed >> 32)});
  return (static_cast<std::uint64_t>(words[0]) << 32) | words[1];
}

std::string tokens(std::int64_t count) {
  return std::to_string(count) + (count == 1 ? " token" : " tokens");
}

Status check_length(const char* field, const std::string& value, std::size_t max_bytes) {
  if (value.size() <= max_bytes) return {};
  return fail(ErrorCode::invalid_request,
              std::string(field) + " has " + std::to_string(value.size()) + " bytes; at most " +
                  std::to_string(max_bytes) + " are allowed",
              field);
}

/// Returns the request's sampling parameters with the engine's defaults and limits. A request that continues from
/// another engine keeps its stream_interval, because its client counts the deltas.
SamplingParams sampling_of(const GenerateRequest& request, const AdmissionLimits& limits) {
  SamplingParams sampling = with_defaults(request.sampling, request.open, limits.defaults);
  const bool is_shorter = sampling.stream_interval.value_or(1) < limits.stream_interval;
  if (is_shorter && !request.progress) sampling.stream_interval = limits.stream_interval;
  if (request.may_drop_thinking_budget && !limits.knows_thinking) sampling.thinking_token_budget.reset();
  return sampling;
}

/// Returns the error of a prompt that is too long. It begins with Anthropic's words, by which agents know that they
/// must shorten a conversation.
Status too_long(const char* field, const std::string& num_tokens, std::int64_t max_tokens, const std::string& why) {
  return fail(ErrorCode::context_too_long,
              "prompt is too long: " + num_tokens + " tokens > " + std::to_string(max_tokens) + " maximum: " + why,
              field);
}

/// Refuses a text that is too long for any tokenization, so that no client waits for its tokenization.
Status check_text(const std::string& prompt, const AdmissionLimits& limits) {
  if (!limits.max_bytes_per_token) return {};
  const std::int64_t max_tokens = std::min(limits.max_model_len, limits.max_kv_tokens);
  const auto num_bytes = static_cast<std::int64_t>(prompt.size());
  if (num_bytes / *limits.max_bytes_per_token < max_tokens) return {};
  const std::int64_t min_prompt_tokens = (num_bytes + *limits.max_bytes_per_token - 1) / *limits.max_bytes_per_token;
  return too_long("prompt", "at least " + std::to_string(min_prompt_tokens), max_tokens - 1,
                  "it has " + std::to_string(num_bytes) + " bytes, but the model and its KV cache take at most " +
                      tokens(max_tokens) + " with at least one to generate");
}

/// Returns the maximum number of tokens of a prompt, with one token to generate.
std::int64_t max_prompt_tokens(const AdmissionLimits& limits) {
  return std::min(limits.max_model_len, limits.max_kv_tokens) - 1;
}

/// As in vLLM, -1 leaves room for max_tokens. If the client left max_tokens open, the prompt gets all room but one
/// token.
Status check_truncation(const GenerateRequest& request, const AdmissionLimits& limits) {
  if (!request.truncate_prompt_tokens) return {};
  constexpr const char* kParam = "truncate_prompt_tokens";
  const std::int64_t tokens_kept = *request.truncate_prompt_tokens;
  const std::int64_t max_kept = max_prompt_tokens(limits);
  if (tokens_kept == -1) {
    if (*prompt_tokens_kept(request, limits) > 0) return {};
    return fail(ErrorCode::invalid_request,
                "truncate_prompt_tokens is -1, but max_tokens " + std::to_string(request.sampling.max_tokens) +
                    " leaves no room for a prompt within " + tokens(max_kept + 1) + "; use a smaller max_tokens",
                kParam);
  }
  if (tokens_kept >= 1 && tokens_kept <= max_kept) return {};
  return fail(ErrorCode::invalid_request,
              "truncate_prompt_tokens must be -1 or from 1 to " + std::to_string(max_kept) +
                  " (the longest prompt that fits), not " + std::to_string(tokens_kept),
              kParam);
}

/// Limits the log-probabilities of requests that ask for more than the default limit, so that one request cannot take
/// all memory. Those of the outputs limit max_tokens.
Status bound_logprobs(std::int64_t prompt_len, std::int64_t vocab_size, SamplingParams& sampling) {
  const auto asked_for = [&](std::optional<std::int64_t>& count) {
    if (count) count = num_logprobs(*count, vocab_size);
    return count.value_or(0) <= SamplingLimits{}.max_logprobs ? 0 : *count + 1;
  };
  const std::int64_t of_prompt = asked_for(sampling.prompt_logprobs);
  if (of_prompt > 0 && prompt_len > kMaxRequestLogprobs / of_prompt) {
    return fail(ErrorCode::invalid_request,
                "prompt_logprobs " + std::to_string(*sampling.prompt_logprobs) + " of " + tokens(prompt_len) +
                    " are too many: a request may have " + std::to_string(kMaxRequestLogprobs) +
                    " log-probabilities of its prompt",
                "prompt_logprobs");
  }
  const std::int64_t of_output = asked_for(sampling.logprobs) * sampling.num_sequences();
  if (of_output == 0) return {};
  sampling.max_tokens = std::min(sampling.max_tokens, kMaxRequestLogprobs / of_output);
  if (sampling.max_tokens >= std::max<std::int64_t>(1, sampling.min_tokens)) return {};
  return fail(ErrorCode::invalid_request,
              "logprobs " + std::to_string(*sampling.logprobs) + " of " + std::to_string(sampling.num_sequences()) +
                  " sequences are too many: a request may have " + std::to_string(kMaxRequestLogprobs) +
                  " log-probabilities of its outputs",
              "logprobs");
}

Status check_bad_words(const std::vector<TokenIds>& words, const AdmissionLimits& limits) {
  const auto is_known = [&](TokenId token) { return token >= 0 && token < limits.vocab_size; };
  for (const TokenIds& word : words) {
    if (!word.empty() && std::ranges::all_of(word, is_known)) continue;
    return fail(ErrorCode::invalid_request, "bad_words has a word without tokens in the model's vocabulary",
                "bad_words");
  }
  return {};
}

Status check_num_tokens(std::int64_t length, const char* field, const AdmissionLimits& limits) {
  if (length == 0) return fail(ErrorCode::invalid_request, "the prompt is empty", field);
  if (length >= limits.max_model_len) {
    return too_long(
        field, std::to_string(length), limits.max_model_len - 1,
        "the model's maximum context length is " + tokens(limits.max_model_len) + ", with at least one to generate");
  }
  if (length + 1 > limits.max_kv_tokens) {
    return too_long(field, std::to_string(length), limits.max_kv_tokens - 1,
                    "the whole KV cache holds " + tokens(limits.max_kv_tokens) + ", with at least one to generate");
  }
  return {};
}

Status check_prompt(const TokenIds& prompt, const char* field, const AdmissionLimits& limits) {
  if (Status valid = check_num_tokens(std::ssize(prompt), field, limits); !valid) return valid;
  for (const TokenId token : prompt) {
    if (token < 0 || token >= limits.vocab_size) {
      return fail(ErrorCode::invalid_request,
                  "the tokenizer returned token id " + std::to_string(token) + ", but the model's vocabulary ends at " +
                      std::to_string(limits.vocab_size - 1),
                  field);
    }
  }
  return {};
}

}  // namespace

Status check_request(const GenerateRequest& request, const AdmissionLimits& limits) {
  if (!request.prompt && !request.prompt_token_ids) {
    return fail(ErrorCode::invalid_request, "prompt or prompt_token_ids is required", "prompt");
  }
  if (request.prompt && request.prompt_token_ids) {
    return fail(ErrorCode::invalid_request, "prompt and prompt_token_ids exclude each other", "prompt_token_ids");
  }
  const std::size_t prompt_bytes = request.prompt ? request.prompt->size() : 0;
  Status literals = text::check_literals(request.prompt_literals, prompt_bytes, "prompt_literals");
  if (!literals) return literals;
  if (Status valid = check_length("user", request.user, kMaxUserBytes); !valid) return valid;
  if (Status valid = check_length("cache_salt", request.cache_salt, kMaxCacheSaltBytes); !valid) return valid;
  if (Status valid = check_length("request_id", request.request_id, kMaxRequestIdBytes); !valid) return valid;
  if (Status valid = check_length("adapter", request.adapter, kMaxAdapterNameBytes); !valid) return valid;
  if (!request.adapter.empty() && !limits.has_adapters) {
    return fail(ErrorCode::unknown_adapter,
                "there is no adapter \"" + request.adapter +
                    "\": the engine was started without enable_lora or enable_prompt_adapter",
                "adapter");
  }
  if (request.timeout_ms && (*request.timeout_ms < 1 || *request.timeout_ms > kMaxTimeoutMs)) {
    return fail(ErrorCode::invalid_request,
                "timeout_ms must be from 1 to " + std::to_string(kMaxTimeoutMs) + ", not " +
                    std::to_string(*request.timeout_ms),
                "timeout_ms");
  }
  const SamplingParams sampling = sampling_of(request, limits);
  Status valid = validate(sampling, limits.sampling, limits.vocab_size, limits.eos_token_ids);
  if (!valid) return valid;
  if (sampling.thinking_token_budget && !limits.knows_thinking) {
    return fail(
        ErrorCode::unsupported,
        "thinking_token_budget is not supported with this model: its chat template has no thinking between marks "
        "of its own",
        "thinking_token_budget");
  }
  // Sampled sequences wait for each other; beams run together.
  if (sampling.use_beam_search && sampling.num_sequences() > limits.max_num_seqs) {
    const char* const field = request.sampling.best_of ? "best_of" : "n";
    return fail(ErrorCode::invalid_request,
                std::string(field) + " is " + std::to_string(request.sampling.num_sequences()) +
                    ", but this engine searches with at most " + std::to_string(limits.max_num_seqs) +
                    " beams at once (max_num_seqs)",
                field);
  }
  if (Status fits = check_truncation(request, limits); !fits) return fits;
  if (request.prompt) return request.truncate_prompt_tokens ? Status() : check_text(*request.prompt, limits);
  const auto& ids = *request.prompt_token_ids;
  if (ids.empty()) return fail(ErrorCode::invalid_request, "prompt_token_ids is empty", "prompt_token_ids");
  for (const std::int64_t id : ids) {
    if (id < 0 || id >= limits.vocab_size) {
      return fail(ErrorCode::invalid_request,
                  "prompt_token_ids has " + std::to_string(id) + ", but the vocabulary ends at " +
                      std::to_string(limits.vocab_size - 1),
                  "prompt_token_ids");
    }
  }
  const std::int64_t num_kept = prompt_tokens_kept(request, limits).value_or(std::ssize(ids));
  return check_num_tokens(std::min<std::int64_t>(num_kept, std::ssize(ids)), "prompt_token_ids", limits);
}

std::optional<std::int64_t> prompt_tokens_kept(const GenerateRequest& request, const AdmissionLimits& limits) {
  if (request.truncate_prompt_tokens != -1) return request.truncate_prompt_tokens;
  const std::int64_t max_tokens = request.open.max_tokens ? 1 : std::max<std::int64_t>(1, request.sampling.max_tokens);
  return max_prompt_tokens(limits) + 1 - max_tokens;
}

Result<SharedSpec> make_spec(const Arrival& arrival, const GenerateRequest& request, Result<TokenIds> prompt,
                             const AdmissionLimits& limits, std::vector<TokenIds> bad_words) {
  const char* const field = request.prompt ? "prompt" : "prompt_token_ids";
  if (!prompt) {
    Error error = prompt.error();
    if (error.param.empty()) error.param = field;
    return fail(std::move(error));
  }
  const bool has_to_fit = !has_ended(request);
  if (const auto num_kept = prompt_tokens_kept(request, limits); num_kept && std::ssize(*prompt) > *num_kept) {
    prompt->erase(prompt->begin(), prompt->end() - *num_kept);
  }
  if (has_to_fit) {
    if (Status valid = check_prompt(*prompt, field, limits); !valid) return fail(valid.error());
    if (Status valid = check_bad_words(bad_words, limits); !valid) return fail(valid.error());
  }
  auto spec = std::make_shared<RequestSpec>();
  spec->id = arrival.id;
  spec->tag = arrival.tag;
  spec->prompt = std::make_shared<const TokenIds>(std::move(*prompt));
  spec->sampling = sampling_of(request, limits);
  if (spec->sampling.logprob_token_ids) spec->sampling.logprobs.reset();  // they are listed in its place
  if (has_to_fit) {
    spec->sampling.max_tokens = std::min(spec->sampling.max_tokens, limits.max_model_len - std::ssize(*spec->prompt));
    Status bounded = bound_logprobs(std::ssize(*spec->prompt), limits.vocab_size, spec->sampling);
    if (!bounded) return fail(bounded.error());
  }
  spec->bad_words = std::move(bad_words);
  spec->seed = request.sampling.seed ? *request.sampling.seed : derived_seed(limits.seed, arrival.id);
  spec->stream = request.stream;
  spec->priority = request.priority;
  spec->user = request.user;
  spec->cache_salt = request.cache_salt;
  spec->arrival_us = arrival.at_us;
  spec->resume = request.resume;
  spec->progress = request.progress;
  SharedSpec made(std::move(spec));
  const auto is_known = [&](const RequestProgress::Sequence& sequence) {
    return std::ranges::all_of(sequence.result.token_ids, [&](TokenId token) { return token < limits.vocab_size; });
  };
  const bool is_usable =
      is_valid(made) && (!made->progress || std::ranges::all_of(made->progress->sequences, is_known));
  if (!is_usable) {
    return fail(ErrorCode::invalid_request, "the saved progress of the request does not fit this engine");
  }
  return made;
}

Result<SharedSpec> with_adapter(const RequestSpec& spec, const GenerateRequest& request, const AdapterRef& adapter,
                                const AdmissionLimits& limits) {
  if (request.adapter_fingerprint != 0 && request.adapter_fingerprint != adapter.facts.fingerprint) {
    return fail(ErrorCode::bad_adapter,
                "the adapter \"" + adapter.name + "\" has other files than when the request began");
  }
  auto with = std::make_shared<RequestSpec>(spec);
  with->adapter = adapter;
  if (adapter.facts.num_virtual_tokens == 0) return with;
  if (adapter.facts.num_virtual_tokens < 0 || adapter.facts.num_virtual_tokens >= limits.max_model_len) {
    return fail(ErrorCode::context_too_long,
                "the adapter \"" + adapter.name + "\" has " + std::to_string(adapter.facts.num_virtual_tokens) +
                    " virtual tokens, but max_model_len is " + std::to_string(limits.max_model_len),
                "adapter");
  }
  std::span<const TokenId> own(*spec.prompt);
  if (request.truncate_prompt_tokens == -1) {
    const std::int64_t num_kept = *prompt_tokens_kept(request, limits) - adapter.facts.num_virtual_tokens;
    if (num_kept > 0 && std::ssize(own) > num_kept) own = own.last(static_cast<std::size_t>(num_kept));
  }
  TokenIds prompt(static_cast<std::size_t>(adapter.facts.num_virtual_tokens), 0);
  prompt.insert(prompt.end(), own.begin(), own.end());
  const std::int64_t length = std::ssize(prompt);
  if (Status fits = check_num_tokens(length, request.prompt ? "prompt" : "prompt_token_ids", limits); !fits) {
    Error error = std::move(fits.error());
    error.message += "; " + std::to_string(adapter.facts.num_virtual_tokens) + " are virtual tokens of the adapter \"" +
                     adapter.name + "\"";
    return fail(std::move(error));
  }
  with->prompt = std::make_shared<const TokenIds>(std::move(prompt));
  with->sampling.max_tokens = std::min(with->sampling.max_tokens, limits.max_model_len - length);
  if (SharedSpec made = with; is_valid(made)) return made;
  return fail(ErrorCode::invalid_request, "the saved progress of the request does not fit its adapter");
}

RequestResult result_before_start(const Arrival& arrival, const GenerateRequest& request, TimeUs now,
                                  const AdmissionLimits& limits) {
  const SamplingParams sampling = sampling_of(request, limits);
  RequestResult result;
  for (std::int32_t index = 0; index < sampling.n; ++index) {
    SequenceResult& output = result.outputs.emplace_back();
    output.index = index;
    if (sampling.reports_logprobs()) output.logprobs.emplace();
    if (sampling.reports_cumulative_logprob()) output.cumulative_logprob = 0.0;
  }
  if (sampling.prompt_logprobs) result.prompt_logprobs.emplace();
  result.timing.total_ms = static_cast<double>(now - arrival.at_us) / 1000.0;
  return result;
}

}  // namespace pagoda::routing

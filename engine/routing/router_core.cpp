#include "engine/routing/router_core.hpp"

#include <algorithm>
#include <string>

#include "kernels/random.hpp"

namespace pagoda::routing {
namespace {

/// The seed of a request that brings none: a draw of the engine's own, one per request id.
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

}  // namespace

SamplingParams RouterCore::sampling_of(const GenerateRequest& request) const {
  return with_defaults(request.sampling, request.open, limits_.defaults);
}

Status RouterCore::check(const GenerateRequest& request) const {
  if (!request.prompt && !request.prompt_token_ids) {
    return fail(ErrorCode::invalid_request, "prompt or prompt_token_ids is required", "prompt");
  }
  if (request.prompt && request.prompt_token_ids) {
    return fail(ErrorCode::invalid_request, "prompt and prompt_token_ids exclude each other", "prompt_token_ids");
  }
  if (Status valid = check_length("user", request.user, kMaxUserBytes); !valid) return valid;
  if (Status valid = check_length("cache_salt", request.cache_salt, kMaxCacheSaltBytes); !valid) return valid;
  const SamplingParams sampling = sampling_of(request);
  Status valid = validate(sampling, limits_.sampling, limits_.vocab_size, limits_.eos_token_ids);
  if (!valid) return valid;
  if (sampling.num_sequences() > limits_.max_num_seqs) {
    const char* const field = request.sampling.best_of ? "best_of" : "n";
    return fail(ErrorCode::invalid_request,
                std::string(field) + " is " + std::to_string(request.sampling.num_sequences()) +
                    ", this engine runs at most " + std::to_string(limits_.max_num_seqs) +
                    " sequences at once (max_num_seqs)",
                field);
  }
  if (request.prompt) return check_text(*request.prompt);
  const auto& ids = *request.prompt_token_ids;
  if (ids.empty()) return fail(ErrorCode::invalid_request, "prompt_token_ids is empty", "prompt_token_ids");
  for (const std::int64_t id : ids) {
    if (id < 0 || id >= limits_.vocab_size) {
      return fail(ErrorCode::invalid_request,
                  "prompt_token_ids has " + std::to_string(id) + ", the vocabulary ends at " +
                      std::to_string(limits_.vocab_size - 1),
                  "prompt_token_ids");
    }
  }
  return {};
}

/// Refuses what is too long whatever its tokens are: nobody waits while it is tokenized.
Status RouterCore::check_text(const std::string& prompt) const {
  if (!limits_.max_bytes_per_token) return {};
  const std::int64_t max_tokens = std::min(limits_.max_model_len, limits_.max_kv_tokens);
  const auto num_bytes = static_cast<std::int64_t>(prompt.size());
  if (num_bytes / *limits_.max_bytes_per_token < max_tokens) return {};
  return fail(ErrorCode::context_too_long,
              "the prompt has " + std::to_string(num_bytes) + " bytes, which are more than the " + tokens(max_tokens) +
                  " that the model and its KV cache take",
              "prompt");
}

Result<RequestId> RouterCore::submit(const GenerateRequest& request) {
  if (refusal_) return fail(*refusal_);
  if (Status checked = check(request); !checked) return fail(checked.error());
  const bool full = static_cast<std::int64_t>(live_.size()) >= limits_.max_queued_requests ||
                    live_prompt_tokens_ >= limits_.max_queued_prompt_tokens;
  if (full) {
    return fail(Error{ErrorCode::queue_full,
                      std::to_string(live_.size()) + " requests with " + tokens(live_prompt_tokens_) + " are queued",
                      {},
                      1000});
  }
  const RequestId id = next_id_++;
  live_.emplace(id, 0);
  return id;
}

Result<SharedSpec> RouterCore::prompt_encoded(RequestId id, const GenerateRequest& request, std::uint64_t tag,
                                              Result<TokenIds> prompt, TimeUs now) {
  const auto refuse = [&](Error error) {
    closed(id);
    return fail(std::move(error));
  };
  const char* const field = request.prompt ? "prompt" : "prompt_token_ids";
  if (!prompt) {
    Error error = prompt.error();
    if (error.param.empty()) error.param = field;
    return refuse(std::move(error));
  }
  const auto length = static_cast<std::int64_t>(prompt->size());
  if (length == 0) return refuse({ErrorCode::invalid_request, "the prompt is empty", field, -1});
  if (length >= limits_.max_model_len) {
    return refuse({ErrorCode::context_too_long,
                   "the prompt has " + tokens(length) + ", the model takes " + std::to_string(limits_.max_model_len) +
                       " with at least one to generate",
                   field, -1});
  }
  if (length + 1 > limits_.max_kv_tokens) {
    return refuse(
        {ErrorCode::context_too_long,
         "the prompt has " + tokens(length) + ", the whole KV cache holds " + std::to_string(limits_.max_kv_tokens),
         field, -1});
  }
  for (const TokenId token : *prompt) {
    if (token < 0 || token >= limits_.vocab_size) {
      return refuse({ErrorCode::invalid_request,
                     "the tokenizer gives id " + std::to_string(token) + ", the model's vocabulary ends at " +
                         std::to_string(limits_.vocab_size - 1),
                     field, -1});
    }
  }
  auto spec = std::make_shared<RequestSpec>();
  spec->id = id;
  spec->tag = tag;
  spec->prompt = std::make_shared<const TokenIds>(std::move(*prompt));
  spec->sampling = sampling_of(request);
  spec->sampling.max_tokens = std::min(spec->sampling.max_tokens, limits_.max_model_len - length);
  spec->seed = request.sampling.seed ? *request.sampling.seed : derived_seed(limits_.seed, id);
  spec->stream = request.stream;
  spec->priority = request.priority;
  spec->user = request.user;
  spec->cache_salt = request.cache_salt;
  spec->arrival_us = now;
  live_[id] = length;
  live_prompt_tokens_ += length;
  placement_.place(*spec);
  return SharedSpec(std::move(spec));
}

RequestResult RouterCore::aborted_before_start(RequestId id, const GenerateRequest& request, TimeUs arrival,
                                               TimeUs now) {
  closed(id);
  const SamplingParams sampling = sampling_of(request);
  RequestResult result;
  for (std::int32_t index = 0; index < sampling.n; ++index) {
    SequenceResult& output = result.outputs.emplace_back();
    output.index = index;
    if (sampling.logprobs) output.logprobs.emplace();
    if (sampling.tells_cumulative_logprob()) output.cumulative_logprob = 0.0;
  }
  if (sampling.prompt_logprobs) result.prompt_logprobs.emplace(1);  // of the first token, which has none
  result.timing.total_ms = static_cast<double>(now - arrival) / 1000.0;
  return result;
}

void RouterCore::start_draining() {
  if (!refusal_) refusal_ = Error{ErrorCode::shutting_down, "the server is shutting down", {}, -1};
}

void RouterCore::closed(RequestId id) {
  const auto found = live_.find(id);
  if (found == live_.end()) return;
  live_prompt_tokens_ -= found->second;
  live_.erase(found);
  placement_.ended(id);
}

}  // namespace pagoda::routing

#include "engine/request/sampling_params.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <iterator>
#include <limits>
#include <string_view>
#include <unordered_set>

namespace pagoda {
namespace {

constexpr std::int64_t kMaxTokens = std::numeric_limits<std::int32_t>::max();

std::string text_of(double value) {
  std::array<char, 32> buffer;
  const auto end = std::to_chars(buffer.data(), buffer.data() + buffer.size(), value).ptr;
  return {buffer.data(), end};
}
std::string text_of(std::int64_t value) {
  return std::to_string(value);
}
std::string text_of(std::size_t value) {
  return std::to_string(value);
}

/// Returns an error like "temperature must be at least 0, but is -1".
template <class Value>
Status refuse(std::string_view param, std::string_view rule, Value value) {
  return fail(ErrorCode::invalid_request,
              std::string(param) + " must be " + std::string(rule) + ", but is " + text_of(value), std::string(param));
}

template <class Value>
std::string range_text(Value low, Value high) {
  return "between " + text_of(low) + " and " + text_of(high);
}

Status check_range(std::string_view param, std::int64_t value, std::int64_t low, std::int64_t high) {
  if (value < low || value > high) return refuse(param, range_text(low, high), value);
  return {};
}

/// NaN is in no range.
Status check_range(std::string_view param, double value, double low, double high) {
  if (!(value >= low && value <= high)) return refuse(param, range_text(low, high), value);
  return {};
}

Status check_count(std::string_view param, std::string_view what, std::size_t count, std::size_t limit) {
  if (count <= limit) return {};
  return fail(ErrorCode::invalid_request,
              std::string(param) + " must have at most " + text_of(limit) + " " + std::string(what) + ", but has " +
                  text_of(count),
              std::string(param));
}

Status check_token(std::string_view param, std::int64_t token, std::int64_t vocab_size) {
  if (token >= 0 && token < vocab_size) return {};
  return fail(ErrorCode::invalid_request,
              std::string(param) + ": token id " + text_of(token) + " is not in the vocabulary (0 to " +
                  text_of(vocab_size - 1) + ")",
              std::string(param));
}

Status check_lengths(const SamplingParams& params) {
  if (Status s = check_range("max_tokens", params.max_tokens, 1, kMaxTokens); !s) return s;
  if (Status s = check_range("min_tokens", params.min_tokens, 0, kMaxTokens); !s) return s;
  if (params.min_tokens > params.max_tokens) {
    return refuse("min_tokens", "at most max_tokens (" + text_of(params.max_tokens) + ")", params.min_tokens);
  }
  if (!params.thinking_token_budget) return {};
  return check_range("thinking_token_budget", *params.thinking_token_budget, 0, kMaxTokens);
}

Status check_warpers(const SamplingParams& params) {
  if (!(params.temperature >= 0.0) || !std::isfinite(params.temperature)) {
    return refuse("temperature", "a finite number, at least 0", params.temperature);
  }
  if (!(params.top_p > 0.0 && params.top_p <= 1.0)) {
    return refuse("top_p", "greater than 0 and at most 1", params.top_p);
  }
  if (params.top_k < -1) return refuse("top_k", "-1 or 0 (all tokens) or at least 1", params.top_k);
  return check_range("min_p", params.min_p, 0.0, 1.0);
}

Status check_counts(const SamplingParams& params, const SamplingLimits& limits) {
  if (Status s = check_range("n", params.n, 1, limits.max_sequences); !s) return s;
  if (!params.best_of) return {};
  if (Status s = check_range("best_of", *params.best_of, 1, limits.max_sequences); !s) return s;
  if (*params.best_of < params.n) {
    return refuse("best_of", "at least n (" + text_of(params.n) + ")", *params.best_of);
  }
  return {};
}

/// Returns an error like "logprobs must be between 0 and 20, or -1, but is 21".
Status check_num_logprobs(std::string_view param, std::int64_t value, std::int64_t limit, std::int64_t vocab_size) {
  if (value >= 0 && num_logprobs(value, vocab_size) <= num_logprobs(limit, vocab_size)) return {};
  if (value == -1 && num_logprobs(limit, vocab_size) == vocab_size) return {};
  const std::string all = limit < 0 ? ", or -1" : "";
  const std::string why = value == -1 ? " (max_logprobs; -1 asks for the whole vocabulary)" : "";
  return refuse(param, range_text(std::int64_t{0}, num_logprobs(limit, vocab_size)) + all + why, value);
}

Status check_penalties(const SamplingParams& params) {
  if (Status s = check_range("presence_penalty", params.presence_penalty, -2.0, 2.0); !s) return s;
  if (Status s = check_range("frequency_penalty", params.frequency_penalty, -2.0, 2.0); !s) return s;
  if (!(params.repetition_penalty > 0.0) || !std::isfinite(params.repetition_penalty)) {
    return refuse("repetition_penalty", "a finite number greater than 0", params.repetition_penalty);
  }
  return check_range("repeat_last_n", params.repeat_last_n, -1, kMaxTokens);
}

Status check_stops(const SamplingParams& params, const SamplingLimits& limits, std::int64_t vocab_size) {
  if (Status s = check_count("stop", "strings", params.stop.size(), limits.max_stop_strings); !s) return s;
  for (const std::string& text : params.stop) {
    if (!text.empty() && text.size() <= limits.max_stop_string_bytes) continue;
    return fail(ErrorCode::invalid_request,
                "stop: each string must have between 1 and " + text_of(limits.max_stop_string_bytes) +
                    " bytes, but one has " + text_of(text.size()),
                "stop");
  }
  if (Status s = check_count("stop_token_ids", "entries", params.stop_token_ids.size(), limits.max_stop_token_ids);
      !s) {
    return s;
  }
  for (const std::int64_t token : params.stop_token_ids) {
    if (Status s = check_token("stop_token_ids", token, vocab_size); !s) return s;
  }
  return {};
}

Status check_logit_bias(const SamplingParams& params, const SamplingLimits& limits, std::int64_t vocab_size) {
  if (Status s = check_count("logit_bias", "entries", params.logit_bias.size(), limits.max_logit_bias); !s) return s;
  for (const auto& [token, bias] : params.logit_bias) {
    if (Status s = check_token("logit_bias", token, vocab_size); !s) return s;
    if (bias >= -100.0 && bias <= 100.0) continue;
    return fail(
        ErrorCode::invalid_request,
        "logit_bias of token " + text_of(token) + " must be " + range_text(-100.0, 100.0) + ", but is " + text_of(bias),
        "logit_bias");
  }
  return {};
}

Status check_bad_words(const SamplingParams& params, const SamplingLimits& limits) {
  if (Status s = check_count("bad_words", "strings", params.bad_words.size(), limits.max_bad_words); !s) return s;
  for (const std::string& word : params.bad_words) {
    if (!word.empty() && word.size() <= limits.max_bad_word_bytes) continue;
    return fail(ErrorCode::invalid_request,
                "bad_words: each string must have between 1 and " + text_of(limits.max_bad_word_bytes) +
                    " bytes, but one has " + text_of(word.size()),
                "bad_words");
  }
  return {};
}

Status check_allowed_tokens(const SamplingParams& params, std::int64_t vocab_size) {
  if (!params.allowed_token_ids) return {};
  constexpr const char* kParam = "allowed_token_ids";
  if (params.allowed_token_ids->empty()) {
    return fail(ErrorCode::invalid_request, "allowed_token_ids is empty: no token is left to sample", kParam);
  }
  if (Status s = check_count(kParam, "entries", params.allowed_token_ids->size(), static_cast<std::size_t>(vocab_size));
      !s) {
    return s;
  }
  for (const std::int64_t token : *params.allowed_token_ids) {
    if (Status s = check_token(kParam, token, vocab_size); !s) return s;
  }
  return {};
}

Status check_logprobs(const SamplingParams& params, const SamplingLimits& limits, std::int64_t vocab_size) {
  const std::int64_t limit = limits.max_logprobs;
  if (params.logprobs) {
    if (Status s = check_num_logprobs("logprobs", *params.logprobs, limit, vocab_size); !s) return s;
  }
  if (params.prompt_logprobs) {
    if (Status s = check_num_logprobs("prompt_logprobs", *params.prompt_logprobs, limit, vocab_size); !s) return s;
  }
  if (!params.logprob_token_ids) return {};
  constexpr const char* kParam = "logprob_token_ids";
  const auto& ids = *params.logprob_token_ids;
  if (ids.empty()) return fail(ErrorCode::invalid_request, "logprob_token_ids is empty; leave it out", kParam);
  if (Status s = check_count(kParam, "entries", ids.size(), limits.max_logprob_token_ids); !s) return s;
  for (const std::int64_t token : ids) {
    if (Status s = check_token(kParam, token, vocab_size); !s) return s;
  }
  if (!params.use_beam_search) return {};
  return fail(ErrorCode::invalid_request,
              "logprob_token_ids cannot be used with use_beam_search, which lists the candidates of its beams; use "
              "logprobs",
              kParam);
}

Status check_text_output(const SamplingParams& params) {
  if (params.stream_interval) {
    if (Status s = check_range("stream_interval", *params.stream_interval, 1, kMaxTokens); !s) return s;
  }
  if (params.detokenize || params.stop.empty()) return {};
  return fail(ErrorCode::invalid_request, "stop needs detokenize: stop strings are searched in the text of the output",
              "stop");
}

/// Refuses parameters that would have no effect. Beam search takes the likeliest continuations, so parameters of a
/// random draw would be ignored; its own two fields would be ignored without it.
Status check_beam_search(const SamplingParams& params) {
  if (!std::isfinite(params.length_penalty)) return refuse("length_penalty", "a finite number", params.length_penalty);
  if (!params.use_beam_search) {
    constexpr std::string_view kOnlyBeam = " has no effect without use_beam_search";
    if (params.length_penalty != 1.0) {
      return fail(ErrorCode::invalid_request,
                  "length_penalty " + text_of(params.length_penalty) + std::string(kOnlyBeam) + "; leave it at 1",
                  "length_penalty");
    }
    if (params.early_stopping != EarlyStopping::no) {
      return fail(ErrorCode::invalid_request, "early_stopping" + std::string(kOnlyBeam) + "; leave it at false",
                  "early_stopping");
    }
    return {};
  }
  if (!params.greedy()) {
    return fail(ErrorCode::invalid_request,
                "temperature must be 0 with use_beam_search, which draws nothing, but is " +
                    text_of(params.temperature) + " (1 when it is not given)",
                "temperature");
  }
  if (params.top_p != 1.0) return refuse("top_p", "1 with use_beam_search", params.top_p);
  if (params.top_k > 0) return refuse("top_k", "-1 or 0 with use_beam_search", params.top_k);
  if (params.min_p != 0.0) return refuse("min_p", "0 with use_beam_search", params.min_p);
  if (!params.stop.empty()) {
    return fail(ErrorCode::invalid_request,
                "stop cannot be used with use_beam_search, which compares token ids; use stop_token_ids", "stop");
  }
  return {};
}

Status check_structured_outputs(const SamplingParams& params) {
  if (!params.structured_outputs) return {};
  constexpr const char* kParam = "structured_outputs";
  const auto refuse_with = [](const char* field) {
    return fail(ErrorCode::invalid_request,
                std::string(field) + " cannot be used with structured_outputs, which decides where the output may end",
                field);
  };
  if (params.ignore_eos) return refuse_with("ignore_eos");
  if (params.min_tokens > 0) return refuse_with("min_tokens");
  const std::size_t num_bytes = params.structured_outputs->num_bytes();
  if (num_bytes <= kMaxStructuredOutputBytes) return {};
  return fail(ErrorCode::invalid_request,
              std::string(kParam) + " must have at most " + text_of(kMaxStructuredOutputBytes) + " bytes, but has " +
                  text_of(num_bytes),
              kParam);
}

/// Checks that a token is left to sample. Before min_tokens tokens are generated, neither a stop id nor an end token of
/// the model may be sampled.
Status check_something_is_left(const SamplingParams& params, std::int64_t vocab_size,
                               std::span<const TokenId> eos_token_ids) {
  if (params.min_tokens == 0) return {};
  const std::size_t max_banned = params.stop_token_ids.size() + eos_token_ids.size();
  if (!params.allowed_token_ids && static_cast<std::int64_t>(max_banned) < vocab_size) return {};
  std::unordered_set<std::int64_t> banned(params.stop_token_ids.begin(), params.stop_token_ids.end());
  banned.insert(eos_token_ids.begin(), eos_token_ids.end());
  if (params.allowed_token_ids) {
    const auto is_banned = [&](std::int64_t token) { return banned.contains(token); };
    if (!std::ranges::all_of(*params.allowed_token_ids, is_banned)) return {};
    return fail(ErrorCode::invalid_request,
                "min_tokens " + text_of(params.min_tokens) +
                    " bans stop_token_ids and the model's end tokens, which are all of allowed_token_ids: no token is "
                    "left to sample",
                "min_tokens");
  }
  if (std::ssize(banned) < vocab_size) return {};
  return fail(
      ErrorCode::invalid_request,
      "min_tokens " + text_of(params.min_tokens) +
          " bans stop_token_ids and the model's end tokens, which are the whole vocabulary: no token is left to "
          "sample",
      "min_tokens");
}

}  // namespace

Status validate(const SamplingParams& params, const SamplingLimits& limits, std::int64_t vocab_size,
                std::span<const TokenId> eos_token_ids) {
  if (Status s = check_lengths(params); !s) return s;
  if (Status s = check_warpers(params); !s) return s;
  if (Status s = check_counts(params, limits); !s) return s;
  if (Status s = check_penalties(params); !s) return s;
  if (Status s = check_stops(params, limits, vocab_size); !s) return s;
  if (Status s = check_logit_bias(params, limits, vocab_size); !s) return s;
  if (Status s = check_bad_words(params, limits); !s) return s;
  if (Status s = check_allowed_tokens(params, vocab_size); !s) return s;
  if (Status s = check_something_is_left(params, vocab_size, eos_token_ids); !s) return s;
  if (Status s = check_logprobs(params, limits, vocab_size); !s) return s;
  if (Status s = check_text_output(params); !s) return s;
  if (Status s = check_structured_outputs(params); !s) return s;
  return check_beam_search(params);
}

}  // namespace pagoda

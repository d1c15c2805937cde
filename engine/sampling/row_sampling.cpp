#include "engine/sampling/row_sampling.hpp"

#include <algorithm>
#include <iterator>

#include "engine/request/ending_tokens.hpp"
#include "engine/sampling/beam_search.hpp"

namespace pagoda {
namespace {

/// Returns the number of log-probabilities that the client or the engine itself needs.
std::int32_t num_logprobs(const SamplingParams& params, const EndingTokens& ends) {
  std::int64_t count = params.logprobs.value_or(-1);
  if (params.logprob_token_ids) count = std::ssize(*params.logprob_token_ids);
  if (params.use_beam_search) count = std::max(count, beam_candidates(params.num_sequences(), ends.all().size()));
  if (params.ranks_outputs()) count = std::max<std::int64_t>(count, 0);
  return static_cast<std::int32_t>(count);
}

TokenIds sorted_tokens(std::span<const std::int64_t> ids) {
  TokenIds tokens(ids.begin(), ids.end());
  std::ranges::sort(tokens);
  tokens.erase(std::ranges::unique(tokens).begin(), tokens.end());
  return tokens;
}

}  // namespace

RowSampling row_sampling(const SamplingParams& params, std::span<const TokenId> eos_token_ids) {
  RowSampling row;
  row.temperature = params.temperature;
  row.top_p = params.top_p;
  row.top_k = std::max<std::int64_t>(params.top_k, 0);
  row.min_p = params.min_p;
  row.presence_penalty = params.presence_penalty;
  row.frequency_penalty = params.frequency_penalty;
  row.repetition_penalty = params.repetition_penalty;
  row.penalty_window = params.repeat_last_n;
  for (const auto& [token, bias] : params.logit_bias) {
    row.logit_bias.emplace_back(static_cast<TokenId>(token), static_cast<float>(bias));
  }
  row.min_tokens = params.min_tokens;
  const EndingTokens ends(params, eos_token_ids);
  row.banned_before_min_tokens = ends.banned_before_min_tokens();
  if (params.allowed_token_ids) row.allowed_tokens = sorted_tokens(*params.allowed_token_ids);
  if (params.logprob_token_ids) {
    row.logprob_tokens.assign(params.logprob_token_ids->begin(), params.logprob_token_ids->end());
  }
  row.num_logprobs = num_logprobs(params, ends);
  row.num_prompt_logprobs = static_cast<std::int32_t>(params.prompt_logprobs.value_or(-1));
  row.processed_logprobs = params.use_beam_search;
  return row;
}

}  // namespace pagoda

#include "engine/sampling/sequence_sampler.hpp"

#include <algorithm>
#include <limits>

#include "engine/sampling/beam_search.hpp"

namespace pagoda {
namespace {

/// A validated number as float32, kept above 0 and finite where the double is.
float positive_float(double value) {
  using Limits = std::numeric_limits<float>;
  return static_cast<float>(std::clamp(value, static_cast<double>(Limits::min()), static_cast<double>(Limits::max())));
}

/// Log-probabilities the engine itself needs are asked beside those the client asked.
std::int32_t num_logprobs(const SamplingParams& params, std::size_t num_eos) {
  const std::size_t num_ending_tokens = params.stop_token_ids.size() + (params.ignore_eos ? 0 : num_eos);
  std::int64_t count = params.logprobs.value_or(-1);
  if (params.use_beam_search) count = std::max(count, beam_candidates(params.num_sequences(), num_ending_tokens));
  if (params.ranks_outputs()) count = std::max<std::int64_t>(count, 0);
  return static_cast<std::int32_t>(count);
}

}  // namespace

SequenceSampler::SequenceSampler(const SamplingParams& params, std::span<const TokenId> eos_token_ids,
                                 std::uint64_t seed, std::uint32_t sequence_index, std::int64_t vocab_size)
    : num_prompt_logprobs_(static_cast<std::int32_t>(params.prompt_logprobs.value_or(-1))),
      min_tokens_(params.min_tokens) {
  fixed_.temperature = params.greedy() ? 0.0F : positive_float(params.temperature);
  fixed_.top_k = params.top_k > 0 && params.top_k < vocab_size ? static_cast<std::int32_t>(params.top_k) : 0;
  fixed_.top_p = positive_float(params.top_p);
  fixed_.min_p = static_cast<float>(params.min_p);
  fixed_.seed = seed;
  fixed_.sequence_index = sequence_index;
  fixed_.num_logprobs = num_logprobs(params, eos_token_ids.size());
  fixed_.processed_logprobs = params.use_beam_search;
  fixed_.presence_penalty = static_cast<float>(params.presence_penalty);
  fixed_.frequency_penalty = static_cast<float>(params.frequency_penalty);
  fixed_.repetition_penalty = positive_float(params.repetition_penalty);

  if (min_tokens_ > 0) {
    banned_before_min_tokens_.assign(eos_token_ids.begin(), eos_token_ids.end());
    for (const std::int64_t token : params.stop_token_ids) {
      banned_before_min_tokens_.push_back(static_cast<TokenId>(token));
    }
  }
  for (const auto& [token, bias] : params.logit_bias) {
    bias_tokens_.push_back(static_cast<TokenId>(token));
    bias_values_.push_back(static_cast<float>(bias));
  }
}

kernels::SampleRow SequenceSampler::row(std::int32_t logits_row, std::span<const TokenId> prompt,
                                        std::span<const TokenId> output) const {
  kernels::SampleRow row = fixed_;
  row.logits_row = logits_row;
  row.position = static_cast<std::uint32_t>(prompt.size() + output.size());
  row.prompt_tokens = prompt;
  row.output_tokens = output;
  if (static_cast<std::int64_t>(output.size()) < min_tokens_) row.banned_tokens = banned_before_min_tokens_;
  row.bias_tokens = bias_tokens_;
  row.bias_values = bias_values_;
  return row;
}

kernels::SampleRow SequenceSampler::prompt_logprobs_row(std::int32_t logits_row, TokenId token,
                                                        std::uint32_t position) const {
  kernels::SampleRow row;
  row.logits_row = logits_row;
  row.position = position;
  row.num_logprobs = num_prompt_logprobs_;
  row.forced_token = token;
  return row;
}

}  // namespace pagoda

#include "engine/sampling/sequence_sampler.hpp"

#include <algorithm>
#include <limits>

#include "engine/request/token_bans.hpp"

namespace pagoda {
namespace {

std::span<const TokenId> last_of(std::span<const TokenId> tokens, std::size_t count) {
  return tokens.last(std::min(tokens.size(), count));
}

/// Returns a validated number as float32, kept above 0 and finite where the double is.
float positive_float(double value) {
  using Limits = std::numeric_limits<float>;
  return static_cast<float>(std::clamp(value, static_cast<double>(Limits::min()), static_cast<double>(Limits::max())));
}

}  // namespace

SequenceSampler::SequenceSampler(const RowSampling& sampling, std::uint64_t seed, std::uint32_t sequence_index,
                                 std::int64_t vocab_size)
    : num_prompt_logprobs_(sampling.num_prompt_logprobs),
      min_tokens_(sampling.min_tokens),
      penalty_window_(sampling.penalty_window < 0 ? std::numeric_limits<std::size_t>::max()
                                                  : static_cast<std::size_t>(sampling.penalty_window)),
      banned_before_min_tokens_(sampling.banned_before_min_tokens),
      logprob_tokens_(sampling.logprob_tokens) {
  fixed_.temperature = sampling.temperature == 0.0 ? 0.0F : positive_float(sampling.temperature);
  fixed_.top_k = sampling.top_k < vocab_size ? static_cast<std::int32_t>(sampling.top_k) : 0;
  fixed_.top_p = positive_float(sampling.top_p);
  fixed_.min_p = static_cast<float>(sampling.min_p);
  fixed_.seed = seed;
  fixed_.sequence_index = sequence_index;
  fixed_.num_logprobs = sampling.num_logprobs;
  fixed_.processed_logprobs = sampling.processed_logprobs;
  fixed_.presence_penalty = static_cast<float>(sampling.presence_penalty);
  fixed_.frequency_penalty = static_cast<float>(sampling.frequency_penalty);
  fixed_.repetition_penalty = positive_float(sampling.repetition_penalty);
  if (!sampling.allowed_tokens.empty()) allowed_tokens_ = token_mask(sampling.allowed_tokens, vocab_size);
  for (const TokenIds& word : sampling.bad_words) {
    bad_word_tokens_.insert(bad_word_tokens_.end(), word.begin(), word.end());
    bad_word_ends_.push_back(static_cast<std::int32_t>(bad_word_tokens_.size()));
    longest_bad_word_ = std::max(longest_bad_word_, word.size());
  }
  for (const auto& [token, bias] : sampling.logit_bias) {
    bias_tokens_.push_back(token);
    bias_values_.push_back(bias);
  }
}

kernels::SampleRow SequenceSampler::row(std::int32_t logits_row, std::span<const TokenId> prompt,
                                        std::span<const TokenId> output) const {
  kernels::SampleRow row = fixed_;
  row.logits_row = logits_row;
  row.position = static_cast<std::uint32_t>(prompt.size() + output.size());
  row.output_tokens = last_of(output, penalty_window_);
  row.prompt_tokens = last_of(prompt, penalty_window_ - row.output_tokens.size());
  if (static_cast<std::int64_t>(output.size()) < min_tokens_) row.banned_tokens = banned_before_min_tokens_;
  row.allowed_tokens = allowed_tokens_;
  row.logprob_tokens = logprob_tokens_;
  if (longest_bad_word_ > 0) {
    row.bad_word_tokens = bad_word_tokens_;
    row.bad_word_ends = bad_word_ends_;
    row.last_tokens = last_of(output, longest_bad_word_ - 1);
  }
  row.bias_tokens = bias_tokens_;
  row.bias_values = bias_values_;
  return row;
}

kernels::SampleRow SequenceSampler::draft_row(std::int32_t logits_row, std::span<const TokenId> prompt,
                                              std::span<const TokenId> output) const {
  kernels::SampleRow draft = row(logits_row, prompt, output);
  draft.num_logprobs = -1;
  draft.logprob_tokens = {};
  return draft;
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

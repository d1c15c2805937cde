#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "engine/step/execute.hpp"
#include "engine/types.hpp"
#include "kernels/sample.hpp"

namespace pagoda {

/// Turns how a row is sampled and its tokens into rows of the sampling op.
/// A worker keeps one per sequence; what does not change from step to step is prepared once. Not thread-safe to move
/// while rows of it are in use.
class SequenceSampler {
 public:
  /// `seed`: the request's, or the one the engine chose for it.
  SequenceSampler(const RowSampling& sampling, std::uint64_t seed, std::uint32_t sequence_index,
                  std::int64_t vocab_size);

  /// The row that samples the token after prompt and output.
  ///
  /// The row's spans point into this object and into `prompt` and `output`: they must stay as they are until the op
  /// ran.
  kernels::SampleRow row(std::int32_t logits_row, std::span<const TokenId> prompt,
                         std::span<const TokenId> output) const;

  /// Whether the request's allowed_token_ids or bad_words leave some tokens out.
  bool restricts_tokens() const { return !allowed_tokens_.empty() || !bad_word_ends_.empty(); }

  /// The row that reports on `token`, which follows `position - 1` in the prompt (prompt_logprobs); nothing is drawn.
  kernels::SampleRow prompt_logprobs_row(std::int32_t logits_row, TokenId token, std::uint32_t position) const;

 private:
  kernels::SampleRow fixed_;  // all that is the same at each step
  std::int32_t num_prompt_logprobs_ = -1;
  std::int64_t min_tokens_ = 0;
  std::size_t penalty_window_ = 0;
  TokenIds banned_before_min_tokens_;
  std::vector<std::uint32_t> allowed_tokens_;  // a mask of the vocabulary; empty = all
  TokenIds logprob_tokens_;
  TokenIds bad_word_tokens_;  // as SampleRow's
  std::vector<std::int32_t> bad_word_ends_;
  std::size_t longest_bad_word_ = 0;
  TokenIds bias_tokens_;
  std::vector<float> bias_values_;
};

}  // namespace pagoda

#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "engine/step/execute.hpp"
#include "engine/types.hpp"
#include "kernels/sample.hpp"

namespace pagoda {

/// Makes the rows of the sampling op from the RowSampling and the tokens of a row. A worker keeps one object per
/// sequence, which holds all values that stay equal from step to step. It must not be moved while rows of it are in
/// use.
class SequenceSampler {
 public:
  /// `seed`: the seed of the request, or one that the engine chose for it.
  SequenceSampler(const RowSampling& sampling, std::uint64_t seed, std::uint32_t sequence_index,
                  std::int64_t vocab_size);

  /// Returns the row that samples the token behind prompt and output.
  ///
  /// The spans of the row point into this object and into `prompt` and `output`, which must not change until the op has
  /// run.
  kernels::SampleRow row(std::int32_t logits_row, std::span<const TokenId> prompt,
                         std::span<const TokenId> output) const;

  /// Returns the row that samples a draft of this token, from the logits of another model, with the same random numbers
  /// and without reports.
  kernels::SampleRow draft_row(std::int32_t logits_row, std::span<const TokenId> prompt,
                               std::span<const TokenId> output) const;

  /// Returns whether allowed_token_ids or bad_words of the request exclude some tokens.
  bool restricts_tokens() const { return !allowed_tokens_.empty() || !bad_word_ends_.empty(); }

  /// Returns the row that reports on `token`, which follows the position `position` - 1 of the prompt
  /// (prompt_logprobs). It draws nothing.
  kernels::SampleRow prompt_logprobs_row(std::int32_t logits_row, TokenId token, std::uint32_t position) const;

 private:
  kernels::SampleRow fixed_;  // values that are equal at each step
  std::int32_t num_prompt_logprobs_ = -1;
  std::int64_t min_tokens_ = 0;
  std::size_t penalty_window_ = 0;
  TokenIds banned_before_min_tokens_;
  std::vector<std::uint32_t> allowed_tokens_;  // mask of the vocabulary; empty = all tokens
  TokenIds logprob_tokens_;
  TokenIds bad_word_tokens_;  // see SampleRow
  std::vector<std::int32_t> bad_word_ends_;
  std::size_t longest_bad_word_ = 0;
  TokenIds bias_tokens_;
  std::vector<float> bias_values_;
};

}  // namespace pagoda

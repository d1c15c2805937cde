#pragma once

/// The sampling op: one pass over the batch's logits with per-row parameters.

#include <cstddef>
#include <cstdint>
#include <span>

#include "kernels/ops.hpp"

namespace pagoda::kernels {

/// Returns the number of words in a mask of `vocab` tokens: bit t % 32 of word t / 32 is set where token t is allowed.
constexpr std::size_t mask_words(std::int64_t vocab) {
  return static_cast<std::size_t>((vocab + 31) / 32);
}

/// Parameters that turn one row of logits into a token. The order of operations is vLLM's (v1/sample/sampler.py): (1)
/// the reported log-probabilities are taken from the raw logits; (2) tokens that are not allowed, banned tokens
/// (min_tokens) and last tokens of bad words get the logit -inf, then the logit bias is added; (3) penalties:
/// repetition (prompt and output: x > 0 ? x / r : x * r), frequency (x -= f * count in the output), presence (x -= p if
/// in the output); (4) temperature; (5) min_p, top_k, top_p, each over the tokens that the previous filter kept,
/// renormalised; (6) one draw with a counter-based random number keyed by (seed, sequence index, position).
struct SampleRow {
  std::int32_t logits_row = 0;  ///< row of SampleParams::logits; several rows may share one (n > 1 at the prompt's end)
  float temperature = 1.0F;     ///< 0 = greedy: argmax, ties to the lowest id; softmax only for logprobs
  std::int32_t top_k = 0;       ///< 0 = all
  float top_p = 1.0F;
  float min_p = 0.0F;
  std::uint64_t seed = 0;
  std::uint32_t sequence_index = 0;
  std::uint32_t position = 0;      ///< index of the sampled token in the sequence (prompt included)
  std::int32_t num_logprobs = -1;  ///< -1 = none; 0 = the sampled token's; k = also those of the top k tokens
  /// The num_logprobs tokens whose log-probabilities are listed in place of the top k, in this order; empty = the top
  /// k.
  std::span<const std::int32_t> logprob_tokens{};
  std::int32_t forced_token = -1;  ///< >= 0: this is the output token, without a draw (prompt logprobs); -1 = none
  /// Whether logprobs are taken after steps 2 and 3 (beam search); otherwise they are taken from the raw logits.
  bool processed_logprobs = false;

  float presence_penalty = 0.0F;
  float frequency_penalty = 0.0F;
  float repetition_penalty = 1.0F;
  std::span<const std::int32_t> prompt_tokens{};  ///< only read when a penalty is set
  std::span<const std::int32_t> output_tokens{};  ///< only read when a penalty is set

  /// Mask of mask_words(vocab) words; tokens outside it get the logit -inf. Empty = all tokens are allowed.
  std::span<const std::uint32_t> allowed_tokens{};
  std::span<const std::int32_t> banned_tokens{};  ///< logit = -inf (eos and stop ids before min_tokens)
  /// Tokens of all bad words, concatenated. The last token of a word gets the logit -inf if the output ends with the
  /// word's other tokens.
  std::span<const std::int32_t> bad_word_tokens{};
  /// End index of each word in bad_word_tokens; no word is empty.
  std::span<const std::int32_t> bad_word_ends{};
  /// End of the output: as many tokens as the longest bad word has before its last token, or the whole output if that
  /// is shorter. Only read if there are bad words.
  std::span<const std::int32_t> last_tokens{};
  std::span<const std::int32_t> bias_tokens{};
  std::span<const float> bias_values{};  ///< parallel to bias_tokens
};

/// Returns whether step 3 changes the row's logits.
bool has_penalty(const SampleRow& row);
/// Returns whether steps 2 and 3 change the row's logits.
bool changes_logits(const SampleRow& row);

/// Reason why a row could not be sampled. The other rows of the batch are still sampled.
enum class SampleProblem : std::uint8_t { none, not_finite, nothing_left, token_out_of_range };

/// Returns a description of the problem, without a full stop.
const char* describe(SampleProblem problem);

/// The draw of one row. Log-probabilities are natural logs.
struct SampleOutput {
  std::int32_t token = 0;
  float logprob = 0;                            ///< of `token`; only when num_logprobs >= 0
  std::int32_t rank = 0;                        ///< 1 + number of likelier tokens; only when num_logprobs >= 0
  std::int32_t num_top = 0;                     ///< entries written to the row's part of top_tokens / top_logprobs
  SampleProblem problem = SampleProblem::none;  ///< if not none, `token` is -1 and the other fields are 0
};

struct SampleParams {
  const float* logits = nullptr;  ///< [num_logit_rows, vocab]; not modified
  std::int64_t num_logit_rows = 0;
  std::int64_t vocab = 0;
  std::span<const SampleRow> rows{};
  SampleOutput* outputs = nullptr;     ///< [rows]
  std::int32_t* top_tokens = nullptr;  ///< [rows, max_top]; may be null when max_top is 0
  float* top_logprobs = nullptr;       ///< [rows, max_top]
  std::int64_t max_top = 0;            ///< >= every row's num_logprobs
};

}  // namespace pagoda::kernels

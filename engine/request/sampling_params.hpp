#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "engine/request/answer_marks.hpp"
#include "engine/request/structured_output.hpp"
#include "engine/types.hpp"
#include "kernels/result.hpp"

namespace pagoda {

/// Condition for beam search to stop before every beam is done (as in vLLM and transformers).
enum class EarlyStopping : std::uint8_t { no, yes, never };
constexpr EarlyStopping last_value(EarlyStopping) {
  return EarlyStopping::never;
}

/// How tokens are chosen. Names, defaults and meanings of the fields are vLLM's.
struct SamplingParams {
  std::int64_t max_tokens = 16;
  std::int64_t min_tokens = 0;
  double temperature = 1.0;  ///< 0 = greedy
  double top_p = 1.0;        ///< (0, 1]
  std::int64_t top_k = -1;   ///< -1 or 0 = all
  double min_p = 0.0;        ///< [0, 1]
  std::int64_t n = 1;
  std::optional<std::int64_t> best_of;  ///< absent = n
  std::optional<std::uint64_t> seed;
  std::vector<std::string> stop;
  std::vector<std::int64_t> stop_token_ids;
  bool ignore_eos = false;
  bool include_stop_str_in_output = false;
  double presence_penalty = 0.0;    ///< [-2, 2]
  double frequency_penalty = 0.0;   ///< [-2, 2]
  double repetition_penalty = 1.0;  ///< above 0
  /// Number of last tokens, of prompt and output together, that the penalties look at; -1 = all, 0 = none. The name is
  /// from Ollama.
  std::int64_t repeat_last_n = -1;
  std::vector<std::pair<std::int64_t, double>> logit_bias;  ///< (token id, bias in [-100, 100])
  /// Texts that are not generated: where the output ends with all tokens of a word but the last, the last token is not
  /// sampled. A word counts with a space before it and without.
  std::vector<std::string> bad_words;
  std::optional<std::vector<std::int64_t>> allowed_token_ids;  ///< tokens that may be sampled; absent = all
  /// Number of likeliest tokens to report beside the sampled token; -1 = the whole vocabulary.
  std::optional<std::int64_t> logprobs;
  std::optional<std::int64_t> prompt_logprobs;
  /// Tokens whose log-probabilities are reported beside the sampled token's; absent = the likeliest tokens are
  /// reported.
  std::optional<std::vector<std::int64_t>> logprob_token_ids;
  bool detokenize = true;  ///< whether text is made; false = tokens only
  bool skip_special_tokens = true;
  /// Whether spaces separate consecutive special tokens; false = they are written as they are.
  bool spaces_between_special_tokens = true;
  /// Number of tokens in each delta but the first, which has one; absent = 1.
  std::optional<std::int64_t> stream_interval;
  bool use_beam_search = false;
  double length_penalty = 1.0;
  EarlyStopping early_stopping = EarlyStopping::no;
  std::optional<StructuredOutput> structured_outputs;  ///< constraint of the text
  /// Maximum number of thinking tokens; then the engine writes the end of the thinking. Absent = no limit.
  std::optional<std::int64_t> thinking_token_budget;
  /// Whether speculation may propose drafts. Structured outputs have drafts in any case.
  bool speculation = true;
  /// Marks of the answer: `stop` counts only inside the answer. Absent = it counts in the whole text. Set together with
  /// a prompt that a chat template makes; clients cannot set it.
  std::optional<AnswerMarks> answer_marks;
  /// Whether the text has special tokens in spite of skip_special_tokens, because they may be marks by which the answer
  /// is read; one that ends the answer is left out. Clients cannot set it.
  bool shows_marks = false;

  static constexpr auto visit_fields(auto& self, auto&& visit) {
    return visit(self.max_tokens, self.min_tokens, self.temperature, self.top_p, self.top_k, self.min_p, self.n,
                 self.best_of, self.seed, self.stop, self.stop_token_ids, self.ignore_eos,
                 self.include_stop_str_in_output, self.presence_penalty, self.frequency_penalty,
                 self.repetition_penalty, self.logit_bias, self.bad_words, self.allowed_token_ids, self.logprobs,
                 self.prompt_logprobs, self.logprob_token_ids, self.detokenize, self.skip_special_tokens,
                 self.spaces_between_special_tokens, self.stream_interval, self.use_beam_search, self.length_penalty,
                 self.early_stopping, self.structured_outputs, self.thinking_token_budget, self.repeat_last_n,
                 self.answer_marks, self.speculation, self.shows_marks);
  }

  bool greedy() const { return temperature == 0.0; }
  /// Returns the number of sequences that are generated; the n best are returned. With use_beam_search it is the width
  /// of the search.
  std::int64_t num_sequences() const { return best_of.value_or(n); }
  /// Returns whether the engine chooses the outputs at the end, so that none can be sent before.
  bool chooses_at_end() const { return use_beam_search || num_sequences() > n; }
  /// Returns whether the outputs come best first, by the sum of the log-probabilities of their tokens.
  bool ranks_outputs() const { return best_of.value_or(1) > 1 && !use_beam_search; }
  /// Returns whether each token of an output comes with log-probabilities.
  bool reports_logprobs() const { return logprobs || logprob_token_ids; }
  bool reports_cumulative_logprob() const { return reports_logprobs() || use_beam_search || ranks_outputs(); }
};

/// Maximum number of log-probabilities of one request's prompt, and of its outputs. It applies to a request whose
/// logprobs or prompt_logprobs are above SamplingLimits{}.max_logprobs, which a config must allow.
constexpr std::int64_t kMaxRequestLogprobs = std::int64_t{1} << 24;

/// Upper limits of the fields above. A config can lower the limits, and raise max_logprobs.
struct SamplingLimits {
  std::int64_t max_sequences = 16384;  ///< n and best_of
  std::int64_t max_logprobs = 20;      ///< logprobs and prompt_logprobs; -1 = the vocabulary
  std::size_t max_logprob_token_ids = 128;
  std::size_t max_bad_words = 1024;
  std::size_t max_bad_word_bytes = 1024;
  std::size_t max_stop_strings = 64;
  std::size_t max_stop_string_bytes = 1024;
  std::size_t max_stop_token_ids = 1024;
  std::size_t max_logit_bias = 1024;

  static constexpr auto visit_fields(auto& self, auto&& visit) {
    return visit(self.max_sequences, self.max_logprobs, self.max_stop_strings, self.max_stop_string_bytes,
                 self.max_stop_token_ids, self.max_logit_bias, self.max_logprob_token_ids, self.max_bad_words,
                 self.max_bad_word_bytes);
  }
};

/// Returns the number of log-probabilities that `count`, a valid logprobs or prompt_logprobs, asks for.
constexpr std::int64_t num_logprobs(std::int64_t count, std::int64_t vocab_size) {
  return count < 0 || count > vocab_size ? vocab_size : count;
}

/// Checks every field against its range, the limits and the vocabulary, and every combination of fields. Returns the
/// first problem as invalid_request with `param` = the wire name of the field.
///
/// Refused combinations: min_tokens > max_tokens; best_of < n; use_beam_search with temperature, top_p, top_k or min_p
/// that would shape a random draw, or with stop (the search compares token ids; stop_token_ids end a beam);
/// length_penalty or early_stopping other than the default without use_beam_search; min_tokens > 0 where stop_token_ids
/// and `eos_token_ids`, which min_tokens bans, are the whole vocabulary or all allowed_token_ids; structured_outputs
/// with ignore_eos or min_tokens, since the grammar decides where a text may and must end; stop without detokenize;
/// logprob_token_ids with use_beam_search, which lists the candidates of its beams. n or best_of > 1 with temperature 0
/// is allowed and gives equal sequences.
Status validate(const SamplingParams& params, const SamplingLimits& limits, std::int64_t vocab_size,
                std::span<const TokenId> eos_token_ids = {});

}  // namespace pagoda

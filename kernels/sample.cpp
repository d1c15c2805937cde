#include "kernels/sample.hpp"

#include <cmath>
#include <iterator>
#include <limits>
#include <string>

#include "kernels/ops_check.hpp"

namespace pagoda::kernels {
namespace {

bool are_valid_words(std::span<const std::int32_t> ends, std::int64_t num_tokens) {
  std::int32_t before = 0;
  for (const std::int32_t end : ends) {
    if (end <= before) return false;
    before = end;
  }
  return before == num_tokens;
}

/// Returns a description of the first error in a row's parameters; empty if they are valid.
std::string check_row(const SampleRow& row, const SampleParams& params) {
  if (row.logits_row < 0 || row.logits_row >= params.num_logit_rows) {
    return "logits_row is " + std::to_string(row.logits_row) + " of " + std::to_string(params.num_logit_rows);
  }
  if (row.num_logprobs > params.max_top) {
    return "num_logprobs is " + std::to_string(row.num_logprobs) + ", max_top " + std::to_string(params.max_top);
  }
  if (!row.allowed_tokens.empty() && row.allowed_tokens.size() != mask_words(params.vocab)) {
    return "allowed_tokens has " + std::to_string(row.allowed_tokens.size()) + " words of " +
           std::to_string(mask_words(params.vocab));
  }
  if (row.bias_tokens.size() != row.bias_values.size()) return "bias_tokens and bias_values differ in size";
  if (!row.logprob_tokens.empty() && std::ssize(row.logprob_tokens) != row.num_logprobs) {
    return "num_logprobs is " + std::to_string(row.num_logprobs) + ", logprob_tokens has " +
           std::to_string(row.logprob_tokens.size());
  }
  if (!are_valid_words(row.bad_word_ends, std::ssize(row.bad_word_tokens))) {
    return "bad_word_ends does not divide bad_word_tokens into words";
  }
  const bool in_range = row.temperature >= 0.0F && row.temperature < std::numeric_limits<float>::infinity() &&
                        row.top_p > 0.0F && row.top_p <= 1.0F && row.min_p >= 0.0F && row.min_p <= 1.0F &&
                        row.repetition_penalty > 0.0F && std::isfinite(row.repetition_penalty) &&
                        std::isfinite(row.presence_penalty) && std::isfinite(row.frequency_penalty);
  return in_range ? "" : "a sampling parameter is out of range";
}

}  // namespace

bool has_penalty(const SampleRow& row) {
  return row.presence_penalty != 0.0F || row.frequency_penalty != 0.0F || row.repetition_penalty != 1.0F;
}

bool changes_logits(const SampleRow& row) {
  return has_penalty(row) || !row.allowed_tokens.empty() || !row.banned_tokens.empty() || !row.bad_word_ends.empty() ||
         !row.bias_tokens.empty();
}

const char* describe(SampleProblem problem) {
  switch (problem) {
    case SampleProblem::none:
      return "nothing is wrong";
    case SampleProblem::not_finite:
      return "a logit is NaN or +inf";
    case SampleProblem::nothing_left:
      return "no token is left to choose from (every logit is -inf)";
    case SampleProblem::token_out_of_range:
      return "a penalised, biased, banned, reported or forced token is not in the vocabulary";
  }
  return "?";
}

Status check(const SampleParams& params) {
  const auto bad = [](const std::string& what) { return fail(ErrorCode::internal, "sample: " + what); };
  if (params.rows.empty()) return {};
  if (params.logits == nullptr || params.outputs == nullptr) return bad("logits or outputs is null");
  if (params.vocab < 1 || params.vocab > std::numeric_limits<std::int32_t>::max()) {
    return bad("vocab is " + std::to_string(params.vocab));
  }
  if (params.max_top > 0 && (params.top_tokens == nullptr || params.top_logprobs == nullptr)) {
    return bad("max_top is " + std::to_string(params.max_top) + " but top_tokens or top_logprobs is null");
  }
  for (std::size_t i = 0; i < params.rows.size(); ++i) {
    const std::string problem = check_row(params.rows[i], params);
    if (!problem.empty()) return bad("row " + std::to_string(i) + ": " + problem);
  }
  return {};
}

}  // namespace pagoda::kernels

#include "kernels/reference/sample.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "kernels/random.hpp"

namespace pagoda::kernels {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();

std::vector<float> raw_logits(const SampleParams& params, const SampleRow& row) {
  const float* first = params.logits + row.logits_row * params.vocab;
  return {first, first + params.vocab};
}

std::vector<float> processed_logits(const SampleParams& params, const SampleRow& row) {
  std::vector<float> logits = raw_logits(params, row);
  for (std::size_t i = 0; i < logits.size() && !row.allowed_tokens.empty(); ++i) {
    if ((row.allowed_tokens[i / 32] >> (i % 32) & 1U) == 0) logits[i] = -kInf;
  }
  for (const std::int32_t token : row.banned_tokens) logits[token] = -kInf;
  for (std::size_t word = 0; word < row.bad_word_ends.size(); ++word) {
    const std::int32_t begin = word == 0 ? 0 : row.bad_word_ends[word - 1];
    const std::vector<std::int32_t> tokens(row.bad_word_tokens.begin() + begin,
                                           row.bad_word_tokens.begin() + row.bad_word_ends[word]);
    const std::size_t num_before = tokens.size() - 1;
    if (num_before > row.last_tokens.size()) continue;
    const std::vector<std::int32_t> end(row.last_tokens.end() - static_cast<std::ptrdiff_t>(num_before),
                                        row.last_tokens.end());
    if (std::equal(end.begin(), end.end(), tokens.begin())) logits[tokens.back()] = -kInf;
  }
  for (std::size_t i = 0; i < row.bias_tokens.size(); ++i) logits[row.bias_tokens[i]] += row.bias_values[i];

  std::vector<std::int32_t> output_count(logits.size(), 0);
  std::vector<bool> seen(logits.size(), false);
  for (const std::int32_t token : row.prompt_tokens) seen[token] = true;
  for (const std::int32_t token : row.output_tokens) {
    seen[token] = true;
    ++output_count[token];
  }
  for (std::size_t i = 0; i < logits.size(); ++i) {
    float x = logits[i];
    if (seen[i]) x = x > 0.0F ? x / row.repetition_penalty : x * row.repetition_penalty;
    x -= row.frequency_penalty * static_cast<float>(output_count[i]);
    if (output_count[i] > 0) x -= row.presence_penalty;
    logits[i] = x == kInf && logits[i] < kInf ? std::numeric_limits<float>::max() : x;
  }
  return logits;
}

/// Returns the ids from the largest logit to the smallest; among equal logits the lower id comes first.
std::vector<std::int32_t> descending_order(const std::vector<float>& logits) {
  std::vector<std::int32_t> order(logits.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](std::int32_t a, std::int32_t b) { return logits[a] > logits[b]; });
  return order;
}

SampleProblem problem_of(const std::vector<float>& logits) {
  bool any = false;
  for (const float x : logits) {
    if (std::isnan(x) || x == kInf) return SampleProblem::not_finite;
    any = any || x > -kInf;
  }
  return any ? SampleProblem::none : SampleProblem::nothing_left;
}

void report(const std::vector<float>& logits, const SampleRow& row, const SampleParams& params, std::size_t index) {
  SampleOutput& out = params.outputs[index];
  const double max = static_cast<double>(*std::max_element(logits.begin(), logits.end()));
  double total = 0;
  for (const float x : logits) total += std::exp(static_cast<double>(x) - max);
  const auto logprob = [&](std::int32_t token) {
    return static_cast<float>(static_cast<double>(logits[token]) - max - std::log(total));
  };
  out.logprob = logprob(out.token);
  out.rank = static_cast<std::int32_t>(
      1 + std::count_if(logits.begin(), logits.end(), [&](float x) { return x > logits[out.token]; }));
  out.num_top = static_cast<std::int32_t>(std::min<std::int64_t>(row.num_logprobs, params.vocab));
  std::vector<std::int32_t> order(row.logprob_tokens.begin(), row.logprob_tokens.end());
  if (order.empty()) order = descending_order(logits);
  for (std::int32_t i = 0; i < out.num_top; ++i) {
    const std::size_t at = index * static_cast<std::size_t>(params.max_top) + static_cast<std::size_t>(i);
    params.top_tokens[at] = order[i];
    params.top_logprobs[at] = logprob(order[i]);
  }
}

std::int32_t draw(const SampleParams& params, const SampleRow& row) {
  const std::vector<double> probabilities = reference_distribution(params, row);
  const double uniform = sampling_uniform(row.seed, row.sequence_index, row.position);
  double cumulative = 0;
  std::int32_t last = 0;
  for (std::size_t i = 0; i < probabilities.size(); ++i) {
    if (probabilities[i] == 0) continue;
    last = static_cast<std::int32_t>(i);
    cumulative += probabilities[i];
    if (uniform < cumulative) break;
  }
  return last;
}

}  // namespace

std::vector<double> reference_distribution(const SampleParams& params, const SampleRow& row) {
  const std::vector<float> logits = processed_logits(params, row);
  const std::vector<std::int32_t> order = descending_order(logits);
  std::vector<double> weights(logits.size(), 0);
  if (row.temperature == 0.0F) {
    weights[order[0]] = 1;
    return weights;
  }
  const double max = static_cast<double>(logits[order[0]]);
  std::size_t kept = 0;  // length of the kept prefix of `order`
  for (const std::int32_t token : order) {
    const double weight = std::exp((static_cast<double>(logits[token]) - max) / static_cast<double>(row.temperature));
    if (weight < static_cast<double>(row.min_p)) break;
    weights[token] = weight;
    ++kept;
  }
  if (row.top_k > 0) kept = std::min(kept, static_cast<std::size_t>(row.top_k));
  double total = 0;
  for (std::size_t i = 0; i < kept; ++i) total += weights[order[i]];
  if (row.top_p < 1.0F) {
    double before = 0;
    std::size_t nucleus = 0;
    while (nucleus < kept && before < static_cast<double>(row.top_p) * total) before += weights[order[nucleus++]];
    kept = nucleus;
    total = before;
  }
  std::vector<double> probabilities(logits.size(), 0);
  for (std::size_t i = 0; i < kept; ++i) probabilities[order[i]] = weights[order[i]] / total;
  return probabilities;
}

void reference_sample(const SampleParams& params) {
  for (std::size_t index = 0; index < params.rows.size(); ++index) {
    const SampleRow& row = params.rows[index];
    SampleOutput& out = params.outputs[index];
    out = {};
    const std::vector<float> processed = processed_logits(params, row);
    const std::vector<float> reported = row.processed_logprobs ? processed : raw_logits(params, row);
    out.problem = problem_of(processed);
    if (out.problem == SampleProblem::none && row.num_logprobs >= 0) out.problem = problem_of(reported);
    if (out.problem != SampleProblem::none) {
      out.token = -1;
      continue;
    }
    out.token = row.forced_token >= 0 ? row.forced_token : draw(params, row);
    if (row.num_logprobs >= 0) report(reported, row, params, index);
  }
}

}  // namespace pagoda::kernels

#include "pagoda/rounding_trials.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "pagoda/divergence.hpp"

namespace pagoda {
namespace {

Error not_finite() {
  return {ErrorCode::bad_file, "the outputs of the model are not finite"};
}

}  // namespace

RoundingTrials::RoundingTrials(TokenLogits& model, const std::vector<TokenIds>& texts) : model_(model) {
  const auto count = std::min<std::int64_t>(kMaxTexts, std::ssize(texts));
  for (std::int64_t i = 0; i < count; ++i) {
    const TokenIds& text = texts[static_cast<std::size_t>(i * std::ssize(texts) / count)];
    const auto tokens = std::min<std::int64_t>(kMaxTokens / count, std::ssize(text));
    if (tokens > 0) texts_.emplace_back(text.begin(), text.begin() + tokens);
  }
}

/// Runs the second half of each text, where tokens have text before them on which they depend.
Status RoundingTrials::run(const TokenLogits::Take& take) {
  Status status;
  for (const TokenIds& text : texts_) {
    if (status) status = model_.run(text, static_cast<std::int32_t>(text.size()) / 2, take);
  }
  return status;
}

Status RoundingTrials::remember() {
  outputs_.clear();
  bool is_finite = true;
  Status status = run([&](std::int32_t, std::span<const float> logits) {
    outputs_.push_back({{logits.begin(), logits.end()}, log_sum_exp(logits)});
    is_finite = is_finite && std::isfinite(outputs_.back().norm);
  });
  if (status && !is_finite) return fail(not_finite());
  return status;
}

Result<double> RoundingTrials::divergence_with(LinearWeights linears) {
  PAGODA_ASSERT(!outputs_.empty(), "the reference outputs are kept");
  Status status = model_.replace(std::move(linears));
  double sum = 0;
  std::size_t position = 0;
  if (status) {
    status = run([&](std::int32_t, std::span<const float> logits) {
      const Output& own = outputs_[position++];
      sum += divergence(logits, log_sum_exp(logits), own.logits, own.norm);
    });
  }
  if (Status back = model_.replace({}); status && !back) status = back;
  if (!status) return fail(status.error());
  if (!std::isfinite(sum)) return fail(not_finite());
  return sum / static_cast<double>(position);
}

std::vector<bool> choose_more_bits(std::span<const LayerTrial> trials, double fewer, double more, double target) {
  const auto gain = [&](std::size_t i) { return trials[i].divergence / static_cast<double>(trials[i].num_weights); };
  std::vector<std::size_t> order(trials.size());
  std::iota(order.begin(), order.end(), 0);
  std::ranges::stable_sort(order, [&](std::size_t a, std::size_t b) { return gain(a) > gain(b); });
  double weights = 0;
  for (const LayerTrial& trial : trials) weights += static_cast<double>(trial.num_weights);
  constexpr double kRounding = 1e-6;                     // bits a weight
  double left = (target - fewer + kRounding) * weights;  // bits
  std::vector<bool> chosen(trials.size(), false);
  for (const std::size_t i : order) {
    const double bits = (more - fewer) * static_cast<double>(trials[i].num_weights);
    if (bits > left || trials[i].divergence <= 0) continue;
    chosen[i] = true;
    left -= bits;
  }
  return chosen;
}

}  // namespace pagoda

#include "pagoda/rounding_trials.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "pagoda/divergence.hpp"

namespace pagoda {
RoundingTrials::RoundingTrials(TokenLogits& model, const std::vector<TokenIds>& texts) : model_(model) {
  std::int64_t left = kMostTokens;
  for (const TokenIds& text : texts) {
    const auto count = std::min<std::int64_t>(left, std::ssize(text));
    if (count > 0) texts_.emplace_back(text.begin(), text.begin() + count);
    left -= count;
  }
}

/// Of each text the second half, which has something behind it to be told from.
Status RoundingTrials::run(const TokenLogits::Take& take) {
  Status status;
  for (const TokenIds& text : texts_) {
    if (status) status = model_.run(text, static_cast<std::int32_t>(text.size()) / 2, take);
  }
  return status;
}

Status RoundingTrials::remember() {
  logits_.clear();
  return run([&](std::int32_t, std::span<const float> logits) { logits_.emplace_back(logits.begin(), logits.end()); });
}

Result<double> RoundingTrials::divergence_with(LinearWeights linears) {
  Status status = model_.replace(std::move(linears));
  double sum = 0;
  std::size_t position = 0;
  if (status) {
    status = run([&](std::int32_t, std::span<const float> logits) {
      const std::vector<float>& own = logits_[position++];
      sum += divergence(logits, log_sum_exp(logits), own, log_sum_exp(own));
    });
  }
  if (Status back = model_.replace({}); status && !back) status = back;
  if (!status) return fail(status.error());
  if (!std::isfinite(sum)) return fail(ErrorCode::bad_file, "the model's answers are not finite");
  return sum / static_cast<double>(std::max<std::size_t>(1, position));
}

std::vector<bool> choose_more_bits(std::span<const LayerTrial> trials, double fewer, double more, double target) {
  const auto gain = [&](std::size_t i) { return trials[i].divergence / static_cast<double>(trials[i].num_weights); };
  std::vector<std::size_t> order(trials.size());
  std::iota(order.begin(), order.end(), 0);
  std::ranges::stable_sort(order, [&](std::size_t a, std::size_t b) { return gain(a) > gain(b); });
  double weights = 0;
  for (const LayerTrial& trial : trials) weights += static_cast<double>(trial.num_weights);
  double left = (target - fewer) * weights;  // bits
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

#include "apps/logit_comparison.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>

#include "pagoda/divergence.hpp"

namespace pagoda::apps {
namespace {

double quantile(const std::vector<double>& sorted, double share) {
  const auto last = static_cast<double>(sorted.size() - 1);
  return sorted[static_cast<std::size_t>(std::llround(share * last))];
}

}  // namespace

void LogitComparison::add(std::span<const float> logits, TokenId next) {
  nll_ += log_sum_exp(logits) - logits[static_cast<std::size_t>(next)];
  ++num_tokens_;
}

void LogitComparison::add(std::span<const float> logits, std::span<const float> reference, TokenId next) {
  const double norm = log_sum_exp(logits);
  const double reference_norm = log_sum_exp(reference);
  kld_.push_back(divergence(logits, norm, reference, reference_norm));
  const auto token = static_cast<std::size_t>(next);
  nll_ += norm - logits[token];
  reference_nll_ += reference_norm - reference[token];
  const double delta_p = std::exp(logits[token] - norm) - std::exp(reference[token] - reference_norm);
  squared_delta_p_ += delta_p * delta_p;
  const auto top = [](std::span<const float> row) { return std::ranges::max_element(row) - row.begin(); };
  if (top(logits) == top(reference)) ++num_same_top_;
  ++num_tokens_;
}

LogitComparison::Summary LogitComparison::summary() const {
  Summary summary;
  if (num_tokens_ == 0) return summary;
  const auto count = static_cast<double>(num_tokens_);
  summary.num_tokens = num_tokens_;
  summary.perplexity = std::exp(nll_ / count);
  if (kld_.empty()) return summary;
  std::vector<double> sorted = kld_;
  std::ranges::sort(sorted);
  double sum = 0;
  for (const double divergence : sorted) sum += divergence;
  summary.reference_perplexity = std::exp(reference_nll_ / count);
  summary.kld_mean = sum / count;
  summary.kld_median = quantile(sorted, 0.5);
  summary.kld_p99 = quantile(sorted, 0.99);
  summary.kld_max = sorted.back();
  summary.same_top = static_cast<double>(num_same_top_) / count;
  summary.rms_delta_p = std::sqrt(squared_delta_p_ / count);
  return summary;
}

}  // namespace pagoda::apps

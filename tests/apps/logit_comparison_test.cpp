#include "apps/logit_comparison.hpp"

#include <cmath>
#include <vector>

#include <gtest/gtest.h>

namespace pagoda::apps {
namespace {

/// Scores of these probabilities, which a softmax does not notice to be moved by a constant.
std::vector<float> scores(const std::vector<double>& probabilities, float moved = 0) {
  std::vector<float> logits;
  for (const double p : probabilities) logits.push_back(static_cast<float>(std::log(p)) + moved);
  return logits;
}

TEST(LogitComparison, OfNothingIsZero) {
  EXPECT_EQ(LogitComparison().summary().num_tokens, 0);
}

TEST(LogitComparison, PerplexityIsTheInverseOfTheMeanProbability) {
  LogitComparison comparison;
  comparison.add(scores({0.5, 0.25, 0.25}, 100), 0);
  comparison.add(scores({0.5, 0.25, 0.25}, -100), 1);
  const auto summary = comparison.summary();
  EXPECT_EQ(summary.num_tokens, 2);
  EXPECT_NEAR(summary.perplexity, 1 / std::sqrt(0.5 * 0.25), 1e-4);
}

TEST(LogitComparison, EqualDistributionsDoNotDiverge) {
  LogitComparison comparison;
  comparison.add(scores({0.1, 0.2, 0.7}, 3), scores({0.1, 0.2, 0.7}), 1);
  const auto summary = comparison.summary();
  EXPECT_NEAR(summary.kld_max, 0, 1e-6);
  EXPECT_EQ(summary.same_top, 1.0);
  EXPECT_NEAR(summary.rms_delta_p, 0, 1e-6);
  EXPECT_NEAR(summary.perplexity, summary.reference_perplexity, 1e-5);
}

TEST(LogitComparison, MeasuresHowFarTheModelIsFromTheReference) {
  LogitComparison comparison;
  comparison.add(scores({0.25, 0.75}), scores({0.5, 0.5}), 0);  // the first of equals is the top
  comparison.add(scores({0.2, 0.8}), scores({0.2, 0.8}), 1);
  const auto summary = comparison.summary();
  const double divergence = 0.5 * std::log(0.5 / 0.25) + 0.5 * std::log(0.5 / 0.75);
  EXPECT_NEAR(summary.kld_mean, divergence / 2, 1e-6);
  EXPECT_NEAR(summary.kld_max, divergence, 1e-6);
  EXPECT_EQ(summary.same_top, 0.5);
  EXPECT_NEAR(summary.rms_delta_p, 0.25 / std::sqrt(2.0), 1e-6);
  EXPECT_NEAR(summary.perplexity, 1 / std::sqrt(0.25 * 0.8), 1e-5);
  EXPECT_NEAR(summary.reference_perplexity, 1 / std::sqrt(0.5 * 0.8), 1e-5);
}

TEST(LogitComparison, WhatIsNotANumberStaysSo) {
  LogitComparison comparison;
  comparison.add(scores({0.25, std::nan("")}), scores({0.5, 0.5}), 0);
  EXPECT_TRUE(std::isnan(comparison.summary().kld_mean));
}

}  // namespace
}  // namespace pagoda::apps

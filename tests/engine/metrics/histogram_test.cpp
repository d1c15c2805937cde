#include "engine/metrics/histogram.hpp"

#include <array>
#include <numeric>
#include <vector>

#include <gtest/gtest.h>

#include "engine/metrics/engine_metrics.hpp"

namespace pagoda::metrics {
namespace {

constexpr std::array kBounds{1.0, 2.5, 10.0};

std::vector<std::uint64_t> counts_of(const Histogram& histogram) {
  return {histogram.counts().begin(), histogram.counts().end()};
}

TEST(Histogram, puts_a_value_into_the_first_bucket_that_reaches_to_it) {
  Histogram histogram(kBounds);
  EXPECT_EQ(counts_of(histogram), (std::vector<std::uint64_t>{0, 0, 0, 0}));
  for (const double value : {0.0, 1.0, 1.1, 2.5, 9.0, 10.0, 10.5, 1e9}) histogram.observe(value);
  EXPECT_EQ(counts_of(histogram), (std::vector<std::uint64_t>{2, 2, 2, 2}));
  EXPECT_EQ(histogram.count(), 8);
  EXPECT_DOUBLE_EQ(histogram.sum(), 0.0 + 1.0 + 1.1 + 2.5 + 9.0 + 10.0 + 10.5 + 1e9);
}

TEST(Histogram, has_room_for_all_buckets_of_the_engine) {
  EngineMetrics metrics;
  metrics.requests.prompt_tokens.observe(1e8);
  metrics.requests.time_to_first_token.observe(0.03);
  metrics.steps.tokens.observe(8);
  EXPECT_EQ(metrics.requests.prompt_tokens.counts().back(), 1);
  EXPECT_EQ(metrics.requests.time_to_first_token.counts()[4], 1);  // up to 0.04
  EXPECT_EQ(metrics.steps.tokens.counts()[1], 1);
}

TEST(HistogramDeathTest, refuses_bounds_that_do_not_rise) {
  static constexpr std::array kFalling{2.0, 1.0};
  EXPECT_DEATH(Histogram{kFalling}, "bounds of buckets are few, and rise");
}

}  // namespace
}  // namespace pagoda::metrics

#include "apps/bench_serve/arrivals.hpp"

#include <cmath>
#include <limits>
#include <vector>

#include <gtest/gtest.h>

namespace pagoda::bench_serve {
namespace {

constexpr double kInfinite = std::numeric_limits<double>::infinity();

/// The mean of the gaps between arrivals, and their standard deviation over it.
std::pair<double, double> gaps_of(Arrivals arrivals) {
  constexpr int kCount = 100000;
  double last = arrivals.next();
  EXPECT_EQ(last, 0);
  double sum = 0;
  double squares = 0;
  for (int i = 0; i < kCount; ++i) {
    const double due = arrivals.next();
    EXPECT_GE(due, last);
    sum += due - last;
    squares += (due - last) * (due - last);
    last = due;
  }
  const double mean = sum / kCount;
  return {mean, std::sqrt(squares / kCount - mean * mean) / mean};
}

TEST(Arrivals, APoissonProcessHasGapsThatVaryAsMuchAsTheirMean) {
  const auto [mean, variation] = gaps_of(Arrivals(4, 1, 7));
  EXPECT_NEAR(mean, 0.25, 0.005);
  EXPECT_NEAR(variation, 1, 0.02);
}

TEST(Arrivals, BurstinessChangesHowMuchGapsVaryAndNotTheirMean) {
  const auto [bursts_mean, bursts_variation] = gaps_of(Arrivals(10, 0.25, 7));
  EXPECT_NEAR(bursts_mean, 0.1, 0.003);
  EXPECT_NEAR(bursts_variation, 2, 0.05);
  const auto [even_mean, even_variation] = gaps_of(Arrivals(10, 16, 7));
  EXPECT_NEAR(even_mean, 0.1, 0.003);
  EXPECT_NEAR(even_variation, 0.25, 0.01);
}

TEST(Arrivals, InfiniteBurstinessIsAFixedRate) {
  Arrivals arrivals(8, kInfinite, 0);
  for (int i = 0; i < 100; ++i) EXPECT_DOUBLE_EQ(arrivals.next(), i / 8.0);
}

TEST(Arrivals, AnInfiniteRateIsAllAtOnce) {
  Arrivals arrivals(kInfinite, 1, 0);
  for (int i = 0; i < 10; ++i) EXPECT_EQ(arrivals.next(), 0);
}

TEST(Arrivals, ASeedRepeatsThem) {
  Arrivals a(3, 1, 5);
  Arrivals b(3, 1, 5);
  Arrivals c(3, 1, 6);
  a.next(), b.next(), c.next();
  const double first = a.next();
  EXPECT_EQ(first, b.next());
  EXPECT_NE(first, c.next());
}

}  // namespace
}  // namespace pagoda::bench_serve

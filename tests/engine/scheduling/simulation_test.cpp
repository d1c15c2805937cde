#include "tests/engine/scheduling/simulation.hpp"

#include <gtest/gtest.h>

namespace pagoda::test {
namespace {

TEST(Simulation, EverySeedEndsEveryRequestWithItsOwnTokens) {
  constexpr std::uint64_t kSeeds = 3000;
  std::int64_t preemptions = 0;
  std::int64_t prefix_hits = 0;
  std::int64_t failures = 0;
  std::int64_t crashes = 0;
  std::int64_t stop_hits = 0;
  std::int64_t beams = 0;
  for (std::uint64_t seed = 0; seed < kSeeds; ++seed) {
    Simulation simulation(random_simulation(seed), seed);
    const auto error = simulation.run();
    ASSERT_FALSE(error) << "seed " << seed << ": " << *error;
    preemptions += simulation.preemptions();
    prefix_hits += simulation.prefix_hits();
    failures += simulation.failures();
    crashes += simulation.crashes();
    stop_hits += simulation.stop_hits();
    beams += simulation.beams_completed();
  }
  EXPECT_GT(preemptions, 1000) << "the seeds must press memory";
  EXPECT_GT(prefix_hits, 1000) << "the seeds must share prefixes";
  EXPECT_GT(failures, 1000) << "steps must fail";
  EXPECT_GT(crashes, 1000) << "workers must die";
  EXPECT_GT(stop_hits, 1000) << "stop strings must end sequences";
  EXPECT_GT(beams, 1000) << "the seeds must search beams";
}

}  // namespace
}  // namespace pagoda::test

#include <cstdint>

#include <gtest/gtest.h>

#include "tests/engine/memory/random_scheduler.hpp"

namespace pagoda::test {
namespace {

constexpr std::uint64_t kNumSeeds = 800;
constexpr int kStepsPerSeed = 80;

/// To replay a failing seed, run this alone: RandomScheduler(seed).run(kStepsPerSeed).
TEST(BlockSpaceModel, EveryRunningSequenceSeesExactlyItsOwnTokensWhateverTheSchedulerDoes) {
  std::int64_t num_commands = 0;
  RandomScheduler::Coverage sum;
  for (std::uint64_t seed = 1; seed <= kNumSeeds; ++seed) {
    RandomScheduler scheduler(seed);
    const auto error = scheduler.run(kStepsPerSeed);
    ASSERT_FALSE(error) << "seed " << seed << ": " << *error;
    num_commands += scheduler.num_commands();
    const RandomScheduler::Coverage& seen = scheduler.coverage();
    sum.admissions += seen.admissions;
    sum.cached_admissions += seen.cached_admissions;
    sum.chunks += seen.chunks;
    sum.forks += seen.forks;
    sum.copies += seen.copies;
    sum.recomputes += seen.recomputes;
    sum.swap_outs += seen.swap_outs;
    sum.swap_ins += seen.swap_ins;
    sum.nevers += seen.nevers;
    sum.failures += seen.failures;
    sum.stamps += seen.stamps;
    sum.early_shares += seen.early_shares;
    sum.misled_readers += seen.misled_readers;
  }
  RecordProperty("commands", std::to_string(num_commands));
  EXPECT_GE(num_commands, 100'000);
  // A random model that never reaches a state proves nothing about it.
  for (const std::int64_t count :
       {sum.admissions, sum.cached_admissions, sum.chunks, sum.forks, sum.copies, sum.recomputes, sum.swap_outs,
        sum.swap_ins, sum.nevers, sum.failures, sum.stamps, sum.early_shares, sum.misled_readers})
    EXPECT_GE(count, 100);
}

}  // namespace
}  // namespace pagoda::test

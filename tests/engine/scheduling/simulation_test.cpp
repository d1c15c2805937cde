#include "tests/engine/scheduling/simulation.hpp"

#include <gtest/gtest.h>

namespace pagoda::test {
namespace {

TEST(Simulation, EverySeedEndsEveryRequestWithItsOwnTokens) {
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
  constexpr std::uint64_t kSeeds = 1'000;  // sanitizers are ten times as slow, and need few seeds to find an error
#else
  constexpr std::uint64_t kSeeds = 10'000;
#endif
  constexpr auto kOften = static_cast<std::int64_t>(kSeeds / 10);
  constexpr auto kSometimes = static_cast<std::int64_t>(kSeeds / 200);
  std::int64_t preemptions = 0;
  std::int64_t prefix_hits = 0;
  std::int64_t failures = 0;
  std::int64_t crashes = 0;
  std::int64_t stop_hits = 0;
  std::int64_t beams = 0;
  std::int64_t forced_tokens = 0;
  std::int64_t right_drafts = 0;
  std::int64_t wrong_drafts = 0;
  std::int64_t late_masks = 0;
  std::int64_t early_shares = 0;
  std::int64_t misled_readers = 0;
  std::int64_t overtaken_groups = 0;
  std::int64_t giving_way = 0;
  std::int64_t given_back = 0;
  std::int64_t poisons_found = 0;
  for (std::uint64_t seed = 0; seed < kSeeds; ++seed) {
    Simulation simulation(random_simulation(seed), seed);
    const auto error = simulation.run();
    ASSERT_FALSE(error) << "seed " << seed << ": " << *error << " (" << describe(random_simulation(seed)) << ")";
    preemptions += simulation.preemptions();
    prefix_hits += simulation.prefix_hits();
    failures += simulation.failures();
    crashes += simulation.crashes();
    stop_hits += simulation.stop_hits();
    beams += simulation.beams_completed();
    forced_tokens += simulation.metrics().forced_tokens;
    right_drafts += simulation.metrics().accepted_draft_tokens;
    wrong_drafts += simulation.metrics().draft_tokens - simulation.metrics().accepted_draft_tokens;
    late_masks += simulation.metrics().late_masks;
    early_shares += simulation.early_shares();
    misled_readers += simulation.misled_readers();
    overtaken_groups += simulation.overtaken_groups();
    giving_way += simulation.giving_way();
    given_back += simulation.given_back();
    poisons_found += simulation.poisons_found();
  }
  EXPECT_GT(preemptions, kOften) << "the seeds must press memory";
  EXPECT_GT(prefix_hits, kOften) << "the seeds must share prefixes";
  EXPECT_GT(failures, kOften) << "steps must fail";
  EXPECT_GT(crashes, kOften) << "workers must die";
  EXPECT_GT(stop_hits, kOften) << "stop strings must end sequences";
  EXPECT_GT(beams, kOften) << "the seeds must search beams";
  EXPECT_GT(forced_tokens, kOften) << "the seeds must have tokens without an alternative";
  EXPECT_GT(right_drafts, kOften / 4) << "the seeds must have drafts that are sampled";
  EXPECT_GT(wrong_drafts, kOften) << "the seeds must have drafts that are not";
  EXPECT_GT(late_masks, kOften) << "steps must go on without masks";
  EXPECT_GT(early_shares, kOften) << "prompts must share what no step has computed yet";
  EXPECT_GT(misled_readers, kSometimes) << "steps must fail that others count on";
  EXPECT_GT(poisons_found, kOften) << "workers must die of requests";
  EXPECT_GT(overtaken_groups, kSometimes) << "waiting groups must come in before swapped ones";
  EXPECT_GT(giving_way, kSometimes) << "groups must give way to more urgent ones";
  EXPECT_GT(given_back, kOften) << "requests must leave and come back";
}

TEST(Simulation, ConfigurationsThatFewHaveEndEveryRequestWithItsOwnTokens) {
  for (std::uint64_t seed = 0; seed < 300; ++seed) {
    const auto config = wide_simulation(seed);
    const auto error = Simulation(config, seed).run();
    ASSERT_FALSE(error) << "seed " << seed << ": " << *error << " (" << describe(config) << ")";
  }
}

TEST(Simulation, ModelsWithTwoToFourKvGroupsEndEveryRequestWithItsOwnTokens) {
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
  constexpr std::uint64_t kSeeds = 1'000;
#else
  constexpr std::uint64_t kSeeds = 10'000;
#endif
  constexpr auto kOften = static_cast<std::int64_t>(kSeeds / 10);
  std::int64_t preemptions = 0;
  std::int64_t prefix_hits = 0;
  std::int64_t early_shares = 0;
  std::int64_t beams = 0;
  for (std::uint64_t seed = 0; seed < kSeeds; ++seed) {
    const auto config = grouped_simulation(seed);
    Simulation simulation(config, seed);
    const auto error = simulation.run();
    ASSERT_FALSE(error) << "seed " << seed << ": " << *error << " (" << describe(config) << ")";
    preemptions += simulation.preemptions();
    prefix_hits += simulation.prefix_hits();
    early_shares += simulation.early_shares();
    beams += simulation.beams_completed();
  }
  EXPECT_GT(preemptions, kOften) << "the seeds must press memory";
  EXPECT_GT(prefix_hits, kOften) << "the seeds must share prefixes";
  EXPECT_GT(early_shares, kOften) << "prompts must share what no step has computed yet";
  EXPECT_GT(beams, kOften) << "the seeds must search beams";
}

TEST(Simulation, PipelineStagesEndEveryRequestWithItsOwnTokens) {
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
  constexpr std::uint64_t kSeeds = 500;
#else
  constexpr std::uint64_t kSeeds = 5'000;
#endif
  constexpr auto kOften = static_cast<std::int64_t>(kSeeds / 10);
  std::int64_t preemptions = 0;
  std::int64_t beams = 0;
  std::int64_t forced_tokens = 0;
  std::int64_t late_masks = 0;
  std::int64_t crashes = 0;
  std::int64_t together = 0;
  std::int64_t late_early = 0;
  for (std::uint64_t seed = 0; seed < kSeeds; ++seed) {
    const auto config = staged_simulation(seed);
    Simulation simulation(config, seed);
    const auto error = simulation.run();
    ASSERT_FALSE(error) << "seed " << seed << ": " << *error << " (" << describe(config) << ")";
    preemptions += simulation.preemptions();
    beams += simulation.beams_completed();
    forced_tokens += simulation.metrics().forced_tokens;
    late_masks += simulation.metrics().late_masks;
    crashes += simulation.crashes();
    late_early += simulation.masks_late_early();
    together += simulation.most_steps_without_masks() > 1 ? 1 : 0;
  }
  EXPECT_GT(preemptions, kOften) << "the seeds must press memory";
  EXPECT_GT(beams, kOften) << "the seeds must search beams";
  EXPECT_GT(forced_tokens, kOften) << "the seeds must have tokens without an alternative";
  EXPECT_GT(late_masks, kOften) << "steps must go on without masks";
  EXPECT_GT(crashes, kOften) << "workers must die";
  EXPECT_GT(late_early, kOften) << "masks must be late before it is the turn of their step";
  EXPECT_GT(together, kOften) << "several steps must wait for masks at once";
}

TEST(Simulation, DraftsOfRepeatedTextsEndEveryRequestWithItsOwnTokens) {
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
  constexpr std::uint64_t kSeeds = 500;
#else
  constexpr std::uint64_t kSeeds = 5'000;
#endif
  constexpr auto kOften = static_cast<std::int64_t>(kSeeds / 10);
  std::int64_t preemptions = 0;
  std::int64_t crashes = 0;
  std::int64_t late_masks = 0;
  std::int64_t right_drafts = 0;
  std::int64_t wrong_drafts = 0;
  for (std::uint64_t seed = 0; seed < kSeeds; ++seed) {
    const auto config = drafting_simulation(seed);
    Simulation simulation(config, seed);
    const auto error = simulation.run();
    ASSERT_FALSE(error) << "seed " << seed << ": " << *error << " (" << describe(config) << ")";
    preemptions += simulation.preemptions();
    crashes += simulation.crashes();
    late_masks += simulation.metrics().late_masks;
    right_drafts += simulation.metrics().accepted_draft_tokens;
    wrong_drafts += simulation.metrics().draft_tokens - simulation.metrics().accepted_draft_tokens;
  }
  EXPECT_GT(preemptions, kOften) << "the seeds must press memory";
  EXPECT_GT(crashes, kOften) << "workers must die";
  EXPECT_GT(late_masks, kOften) << "steps must go on without masks";
  EXPECT_GT(right_drafts, 4 * kOften) << "the seeds must have drafts that are sampled";
  EXPECT_GT(wrong_drafts, 4 * kOften) << "the seeds must have drafts that are not";
}

TEST(Simulation, RequestsThatComeFromElsewhereGoOnWithTheTokensThatTheyHave) {
  for (std::uint64_t seed = 0; seed < 1500; ++seed) {
    SimulationConfig config = random_simulation(seed);
    config.resume_chance = 0.5;
    const auto error = Simulation(config, seed).run();
    ASSERT_FALSE(error) << "seed " << seed << ": " << *error << " (" << describe(config) << ")";
  }
}

/// Runs seeds beyond those of the tests above.
TEST(Simulation, SeedsThatHaveFoundSomethingFindNothingMore) {
  for (const std::uint64_t seed : {1026583U, 1039215U, 1123753U, 1356562U, 1714490U}) {
    SimulationConfig config = random_simulation(seed);
    config.scheduler.target_step_us = 0;  // as when these seeds found an error
    const auto error = Simulation(config, seed).run();
    EXPECT_FALSE(error) << "seed " << seed << ": " << *error;
  }
  for (const std::uint64_t seed : {100534U}) {
    const auto error = Simulation(random_simulation(seed), seed).run();
    EXPECT_FALSE(error) << "seed " << seed << ": " << *error;
  }
  // A worker dies while masks are made for drafts, and the next step has other drafts.
  for (const std::uint64_t seed : {28072U}) {
    const auto error = Simulation(drafting_simulation(seed), seed).run();
    EXPECT_FALSE(error) << "seed " << seed << ": " << *error;
  }
}

}  // namespace
}  // namespace pagoda::test

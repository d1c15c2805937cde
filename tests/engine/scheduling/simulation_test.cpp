#include "tests/engine/scheduling/simulation.hpp"

#include <gtest/gtest.h>

namespace pagoda::test {
namespace {

/// A configuration drawn from the seed: every combination of features, with memory from ample to far too little.
SimulationConfig random_config(std::uint64_t seed) {
  std::mt19937_64 random(seed * 0x9E3779B97F4A7C15U + 1);
  const auto pick = [&](auto... values) {
    const std::vector<std::int32_t> all{values...};
    return all[random() % all.size()];
  };
  SimulationConfig config;
  config.blocks.block_size = pick(1, 2, 4, 16);
  const std::int32_t tokens_for_one = config.most_prompt_tokens + config.most_new_tokens;
  config.blocks.num_device_blocks = (tokens_for_one * pick(1, 2, 4, 12)) / config.blocks.block_size + 1;
  config.blocks.num_host_blocks = pick(0, 1, 3) * config.blocks.num_device_blocks / 2;
  config.blocks.enable_prefix_caching = pick(0, 1) == 1;
  config.scheduler.enable_chunked_prefill = pick(0, 1) == 1;
  config.scheduler.max_num_seqs = pick(4, 8, 32);
  config.scheduler.max_num_batched_tokens = config.scheduler.enable_chunked_prefill
                                                ? std::max(config.scheduler.max_num_seqs, pick(8, 16, 64))
                                                : tokens_for_one;
  config.scheduler.pipeline_depth = pick(1, 2);
  config.scheduler.can_swap = config.blocks.num_host_blocks > 0;
  config.scheduler.preemption = static_cast<PreemptionPolicy>(pick(0, 1, 2));
  config.scheduler.policy = static_cast<SchedulingPolicy>(pick(0, 1, 2));
  config.num_requests = pick(3, 12, 30);
  config.abort_chance = pick(0, 0, 2, 10) / 100.0;
  config.stop_chance = pick(0, 30, 100) / 100.0;
  config.failure_chance = pick(0, 0, 0, 5) / 100.0;
  config.crash_chance = pick(0, 0, 0, 1) / 100.0;
  config.scheduler.block_size = config.blocks.block_size;
  config.scheduler.block_bytes = pick(1, 100'000);
  config.scheduler.priority_aging_s = pick(0, 1) / 1000.0;
  config.scheduler.delay_factor = pick(0, 0, 2);
  config.scheduler.max_chunk_us = pick(0, 1, 10'000);
  return config;
}

TEST(Simulation, EverySeedEndsEveryRequestWithItsOwnTokens) {
  constexpr std::uint64_t kSeeds = 3000;
  std::int64_t preemptions = 0;
  std::int64_t prefix_hits = 0;
  std::int64_t failures = 0;
  std::int64_t crashes = 0;
  std::int64_t stop_hits = 0;
  std::int64_t beams = 0;
  for (std::uint64_t seed = 0; seed < kSeeds; ++seed) {
    Simulation simulation(random_config(seed), seed);
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

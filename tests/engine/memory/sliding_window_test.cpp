#include <algorithm>
#include <set>

#include <gtest/gtest.h>

#include "tests/engine/memory/planning.hpp"

namespace pagoda::memory {
namespace {

BlockSpaceConfig window_of(std::int32_t tokens, std::int32_t num_device_blocks = 10) {
  BlockSpaceConfig config = small_pool(num_device_blocks);
  config.layout = KvLayout::uniform(config.layout.block_size(), tokens);
  return config;
}

TEST(SlidingWindow, HoldsNoMoreBlocksThanTheWindowHoweverLongTheSequenceGets) {
  for (int in_flight = 0; in_flight <= 1; ++in_flight) {
    Planning planning(window_of(10, 4));
    planning.plan(planning.step().admit_group(1, {1}));
    std::set<BlockId> used;
    for (std::int32_t computed = 1; computed < 100; ++computed) {
      const auto planned = planning.plan(
          planning.step().sample(1, computed).mark_computed(1, computed - in_flight).run(1, {{1, computed, 1, 0}}));
      ASSERT_EQ(planned.grant.running[0], RunningOutcome::scheduled);
      ASSERT_LE(planning.num_owned(), 4) << "ceil(10 / 4) + 1";
      ASSERT_EQ(std::ssize(planning.table(1)), computed / 4 + 1) << "indices stay logical";
    }
  }
}

TEST(SlidingWindow, TurnsTheOldestBlockIntoTheNewest) {
  BlockSpaceConfig config = window_of(4);
  config.enable_prefix_caching = false;
  Planning planning(config);
  planning.plan(planning.step().admit_group(1, count_from(0, 8)));
  const BlockId oldest = planning.table(1)[0];
  planning.plan(planning.step().mark_computed(1, 8).run(1, {{1, 8, 1, 0}}));
  EXPECT_EQ(planning.table(1)[2], oldest);
}

TEST(SlidingWindow, AdmitsAPromptLongerThanThePoolWhenItsChunksFit) {
  Planning planning(window_of(6, 4));
  Step step = planning.step();
  step.offer(1, count_from(0, 40)).may_chunk = true;
  auto planned = planning.plan(step);
  ASSERT_EQ(planned.grant.waiting[0].status, AllocStatus::ok);
  std::int32_t computed = planned.grant.waiting[0].num_new_tokens;
  ASSERT_GE(computed, 1);
  while (computed < 40) {
    const std::int32_t chunk = std::min(40 - computed, 5);
    planned = planning.plan(planning.step().mark_computed(1, computed).run(1, {{1, computed, chunk, 0}}));
    ASSERT_EQ(planned.grant.running[0], RunningOutcome::scheduled);
    computed += chunk;
  }
  step = planning.step().release(1);
  step.offer(2, count_from(0, 40)).may_chunk = false;
  EXPECT_EQ(planning.plan(step).grant.waiting[0].status, AllocStatus::never);
}

TEST(SlidingWindow, WaitsForStepsInFlightBeforeItCallsAGroupTooLarge) {
  Planning planning(window_of(4, 3));
  planning.plan(planning.step().admit_group(1, count_from(0, 8)));
  const auto planned = planning.plan(planning.step().wait_for(0).run(1, {{1, 8, 5, 0}}));
  EXPECT_EQ(planned.grant.running[0], RunningOutcome::skipped);
  const auto next = planning.plan(planning.step().mark_computed(1, 8).run(1, {{1, 8, 5, 0}}));
  EXPECT_EQ(next.grant.running[0], RunningOutcome::scheduled);
}

TEST(SlidingWindow, FindsPrefixesWhoseBlocksHaveLeftTheWindow) {
  Planning planning(window_of(4));
  planning.plan(planning.step().admit_group(1, count_from(0, 16)));
  planning.plan(planning.step().mark_computed(1, 16).run(1, {{1, 16, 1, 0}}));
  const std::int32_t owned = planning.num_owned();
  const auto planned = planning.plan(planning.step().admit_group(2, count_from(0, 17)));
  EXPECT_EQ(planned.grant.waiting[0].num_cached_tokens, 16);
  EXPECT_EQ(planning.num_owned(), owned + 1) << "the block in the window is shared, one is new";
}

}  // namespace
}  // namespace pagoda::memory

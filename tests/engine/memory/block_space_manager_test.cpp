#include "engine/memory/block_space_manager.hpp"

#include <gtest/gtest.h>

#include "tests/engine/memory/planning.hpp"

namespace pagoda::memory {
namespace {

TEST(BlockSpaceManager, CountsSharedSlotsOnce) {
  Planning planning(small_pool());
  planning.plan(planning.step().admit_group(1, count_from(0, 6)));
  EXPECT_EQ(planning.stats().allocated_slots, 8);
  EXPECT_EQ(planning.stats().used_slots, 6);
  planning.plan(planning.step().fork_from(1, 2).sample(1, 6).sample(2, 60));
  EXPECT_EQ(planning.stats().allocated_slots, 8);
  EXPECT_EQ(planning.stats().used_slots, 6);
  planning.plan(planning.step().run(1, {{1, 6, 1, 0}, {2, 6, 1, 0}}));
  EXPECT_EQ(planning.stats().allocated_slots, 12);
  EXPECT_EQ(planning.stats().used_slots, 4 + 3 + 3);
}

TEST(BlockSpaceManager, HasEverythingFreeOrCachedWhenAllSequencesAreGone) {
  Planning planning(small_pool());
  planning.plan(planning.step().admit_group(1, count_from(0, 6)).admit_group(2, count_from(50, 6)));
  planning.plan(planning.step().fork_from(1, 3).mark_computed(1, 6));
  const auto planned = planning.plan(planning.step().release(1).release(2).release(3).release(3));
  EXPECT_EQ(planned.grant.memory.device_blocks_free, 8);
  EXPECT_EQ(planned.grant.memory.device_blocks_cached, 2);
  EXPECT_EQ(planned.grant.memory.allocated_slots, 0);
  EXPECT_EQ(planned.grant.memory.used_slots, 0);
}

TEST(BlockSpaceManager, SendsEachRowOnlyWhatChangedInItsTable) {
  Planning planning(small_pool());
  planning.plan(planning.step().admit_group(1, count_from(0, 7)));
  auto planned = planning.plan(planning.step().run(1, {{1, 7, 1, 0}}));
  EXPECT_TRUE(planned.grant.table_deltas.empty());
  planned = planning.plan(planning.step().run(1, {{1, 8, 1, 0}}));
  ASSERT_EQ(planned.grant.table_deltas.size(), 1U);
  EXPECT_EQ(planned.grant.table_deltas[0].first_block, 2);
  EXPECT_EQ(planned.grant.table_deltas[0].blocks.count, 1);
}

TEST(BlockSpaceManager, KeepsTheBlocksOfGroupsThatAStepDoesNotMention) {
  Planning planning(small_pool(4));
  planning.plan(planning.step().admit_group(1, count_from(0, 8)).admit_group(2, count_from(50, 8)));
  const auto planned = planning.plan(planning.step().run(1, {{1, 8, 1, 0}}));
  EXPECT_EQ(planned.grant.running[0], RunningOutcome::preempted_recompute);
  EXPECT_EQ(planning.num_owned(), 2);
}

TEST(BlockSpaceManagerDeathTest, StopsOnASchedulerThatBreaksTheContract) {
  Planning planning(small_pool());
  planning.plan(planning.step().admit_group(1, count_from(0, 6)));
  EXPECT_DEATH(planning.plan(MemoryRequest{}), "increasing order");
  EXPECT_DEATH(planning.plan(planning.step().run(7, {{7, 1, 1, 0}})), "holds no memory");
  EXPECT_DEATH(planning.plan(planning.step().admit_group(1, {1})), "holds memory already");
  EXPECT_DEATH(planning.plan(planning.step().mark_computed(1, 7)), "no step was planned for");
  EXPECT_DEATH(planning.plan(planning.step().run(1, {{1, 9, 1, 0}})), "behind the tokens that were planned");
  EXPECT_DEATH(planning.plan(planning.step().admit_group(2, {})), "at least one token");
}

}  // namespace
}  // namespace pagoda::memory

#include <gtest/gtest.h>

#include "tests/engine/memory/planning.hpp"

namespace pagoda::memory {
namespace {

/// Group 1 has 6 computed tokens and was forked once: sequences 1 and 2 share a full block and a half full one.
class CopyOnWrite : public testing::Test {
 protected:
  void SetUp() override {
    planning_.plan(planning_.step().admit_group(1, count_from(0, 6)));
    const auto planned =
        planning_.plan(planning_.step().fork_from(1, 2).sample(1, 6).sample(2, 60).mark_computed(1, 6));
    ASSERT_EQ(planned.grant.memory.allocated_slots, 8) << "a fork takes no blocks";
  }

  Planning planning_{small_pool(8, 4)};
};

TEST_F(CopyOnWrite, CopiesTheSharedBlockForTheFirstWriterAndLeavesItToTheLast) {
  const auto shared = planning_.table(1);
  const auto planned = planning_.plan(planning_.step().run(1, {{1, 6, 1, 0}, {2, 6, 1, 0}}));
  ASSERT_EQ(planned.cache_plan.copies.size(), 1U);
  EXPECT_EQ(planned.cache_plan.copies[0].from, shared[1]);
  EXPECT_EQ(planned.cache_plan.copies[0].to, planning_.table(1)[1]);
  EXPECT_EQ(planning_.table(1)[0], shared[0]);
  EXPECT_EQ(planning_.table(2), shared);
  EXPECT_TRUE(planned.grant.has_cache_plan);
}

TEST_F(CopyOnWrite, SendsTheChangedEntriesToTheWriterAndTheWholeTableToTheChild) {
  const auto planned = planning_.plan(planning_.step().run(1, {{1, 6, 1, 0}, {2, 6, 1, 0}}));
  ASSERT_EQ(planned.grant.table_deltas.size(), 2U);
  EXPECT_EQ(planned.grant.table_deltas[0].sequence, 1U);
  EXPECT_EQ(planned.grant.table_deltas[0].first_block, 1);
  EXPECT_EQ(planned.grant.table_deltas[0].blocks.count, 1);
  EXPECT_EQ(planned.grant.table_deltas[1].sequence, 2U);
  EXPECT_EQ(planned.grant.table_deltas[1].first_block, 0);
  EXPECT_EQ(planned.grant.table_deltas[1].blocks.count, 2);
  const auto next = planning_.plan(planning_.step().run(1, {{1, 7, 1, 0}, {2, 7, 1, 0}}));
  EXPECT_TRUE(next.grant.table_deltas.empty());
  EXPECT_TRUE(next.cache_plan.empty());
}

TEST_F(CopyOnWrite, WritesInPlaceOnceTheOtherOwnerIsGone) {
  const auto planned = planning_.plan(planning_.step().release(1).run(1, {{2, 6, 1, 0}}));
  EXPECT_TRUE(planned.cache_plan.empty());
  EXPECT_EQ(planned.grant.memory.allocated_slots, 8);
}

TEST_F(CopyOnWrite, DoesNothingForASequenceThatSitsOutAndSendsItsTableWhenItRuns) {
  auto planned = planning_.plan(planning_.step().run(1, {{1, 6, 0, 0}, {2, 6, 1, 0}}));
  ASSERT_EQ(planned.grant.table_deltas.size(), 1U);
  EXPECT_EQ(planned.grant.table_deltas[0].sequence, 2U);
  EXPECT_EQ(planned.cache_plan.copies.size(), 1U);
  planned = planning_.plan(planning_.step().fork_from(1, 3).sample(3, 60).run(1, {{1, 6, 0, 0}, {3, 6, 0, 0}}));
  EXPECT_TRUE(planned.grant.table_deltas.empty());
  planned = planning_.plan(planning_.step().run(1, {{1, 6, 0, 0}, {3, 6, 1, 0}}));
  ASSERT_EQ(planned.grant.table_deltas.size(), 1U);
  EXPECT_EQ(planned.grant.table_deltas[0].sequence, 3U);
  EXPECT_EQ(planned.grant.table_deltas[0].first_block, 0);
}

TEST_F(CopyOnWrite, TakesANewBlockWithoutACopyWhereNothingIsComputedYet) {
  planning_.plan(planning_.step().run(1, {{1, 6, 1, 0}, {2, 6, 1, 0}}));
  planning_.plan(planning_.step().sample(1, 7).sample(2, 70).mark_computed(1, 7).mark_computed(2, 7).run(
      1, {{1, 7, 1, 0}, {2, 7, 1, 0}}));
  // The step in flight writes position 8 of sequence 1 into a block of its own; the child starts at this position with
  // a new block.
  planning_.plan(planning_.step().sample(1, 8).mark_computed(1, 8).run(1, {{1, 8, 1, 0}}));
  planning_.plan(planning_.step().fork_from(1, 3).sample(3, 80));
  const auto planned = planning_.plan(planning_.step().run(1, {{3, 8, 1, 0}}));
  EXPECT_TRUE(planned.cache_plan.copies.empty());
  EXPECT_NE(planning_.table(3)[2], planning_.table(1)[2]);
}

TEST_F(CopyOnWrite, NeverWritesIntoABlockThatOthersCanFind) {
  planning_.plan(planning_.step().run(1, {{1, 6, 2, 0}}));
  // Child 4 knows 7 tokens. Then the parent fills the block that both still share, marks it computed, and is released.
  const auto shared = planning_.table(1);
  planning_.plan(planning_.step().fork_from(1, 4).sample(4, 70).sample(1, 7).mark_computed(1, 8));
  const auto planned = planning_.plan(planning_.step().release(1).release(2).run(1, {{4, 7, 1, 0}}));
  ASSERT_EQ(planned.cache_plan.copies.size(), 1U);
  EXPECT_EQ(planned.cache_plan.copies[0].from, shared[1]);
  EXPECT_EQ(planned.grant.memory.device_blocks_cached, 1) << "the original stays findable";
}

TEST_F(CopyOnWrite, CountsExactlyTheBlocksThatAGroupOfManyWritersLacks) {
  // 6 sequences share 2 blocks: 5 copies, so 7 blocks in total, and there are 8.
  Step forks = planning_.step();
  for (SequenceId child = 3; child <= 6; ++child) forks.fork_from(1, child);
  planning_.plan(forks);
  const auto planned = planning_.plan(
      planning_.step().run(1, {{1, 6, 1, 0}, {2, 6, 1, 0}, {3, 6, 1, 0}, {4, 6, 1, 0}, {5, 6, 1, 0}, {6, 6, 1, 0}}));
  EXPECT_EQ(planned.grant.running[0], RunningOutcome::scheduled);
  EXPECT_EQ(planned.cache_plan.copies.size(), 5U);
  EXPECT_EQ(planned.grant.memory.device_blocks_free, 1);
}

}  // namespace
}  // namespace pagoda::memory

#include <gtest/gtest.h>

#include "tests/engine/memory/planning.hpp"

namespace pagoda::memory {
namespace {

/// Groups 1, 2 and 3 with 8 tokens each fill a pool of 6 blocks.
class Preemption : public testing::Test {
 protected:
  void fill_pool() {
    const auto planned = planning_.plan(planning_.step()
                                            .admit_group(1, count_from(0, 8))
                                            .admit_group(2, count_from(100, 8))
                                            .admit_group(3, count_from(200, 8)));
    ASSERT_EQ(planned.grant.memory.device_blocks_free, 0);
  }

  Step decode(PreemptionMode mode) {
    return planning_.step().run(1, {{1, 8, 1, 0}}, mode).run(2, {{2, 8, 1, 0}}, mode).run(3, {{3, 8, 1, 0}}, mode);
  }

  Planning planning_{small_pool(6, 2)};
};

TEST_F(Preemption, TakesVictimsFromTheBack) {
  fill_pool();
  const auto planned = planning_.plan(decode(PreemptionMode::recompute));
  EXPECT_EQ(planned.grant.running[0], RunningOutcome::scheduled);
  EXPECT_EQ(planned.grant.running[1], RunningOutcome::scheduled);
  EXPECT_EQ(planned.grant.running[2], RunningOutcome::preempted_recompute);
  EXPECT_EQ(planned.grant.memory.device_blocks_free, 0);
}

TEST_F(Preemption, MakesAGroupGiveWayItselfWhenNobodyBehindItIsLeft) {
  fill_pool();
  planning_.plan(decode(PreemptionMode::recompute));
  // Groups 1 and 2 own 3 blocks each. Group 1 needs no new block; group 2 needs 5 more tokens.
  const auto planned = planning_.plan(planning_.step().run(1, {{1, 9, 1, 0}}).run(2, {{2, 9, 5, 0}}));
  EXPECT_EQ(planned.grant.running[0], RunningOutcome::scheduled);
  EXPECT_EQ(planned.grant.running[1], RunningOutcome::preempted_recompute);
  EXPECT_EQ(planning_.num_owned(), 3);
}

TEST_F(Preemption, MovesASwappedVictimToTheHost) {
  fill_pool();
  const auto table = planning_.table(3);
  const auto planned = planning_.plan(decode(PreemptionMode::swap));
  EXPECT_EQ(planned.grant.running[2], RunningOutcome::preempted_swap);
  EXPECT_TRUE(planned.grant.has_cache_plan);
  ASSERT_EQ(planned.cache_plan.swap_out.size(), 2U);
  EXPECT_EQ(planned.cache_plan.swap_out[0].from, table[0]);
  EXPECT_EQ(planned.cache_plan.swap_out[1].from, table[1]);
  EXPECT_NE(planned.cache_plan.swap_out[0].to, planned.cache_plan.swap_out[1].to);
  EXPECT_EQ(planned.grant.memory.host_blocks_free, 0);
}

TEST_F(Preemption, RecomputesWhenTheHostPoolIsFull) {
  fill_pool();
  planning_.plan(decode(PreemptionMode::swap));
  const auto planned = planning_.plan(
      planning_.step().run(1, {{1, 9, 4, 0}}, PreemptionMode::swap).run(2, {{2, 9, 1, 0}}, PreemptionMode::swap));
  EXPECT_EQ(planned.grant.running[0], RunningOutcome::scheduled);
  EXPECT_EQ(planned.grant.running[1], RunningOutcome::preempted_recompute);
  EXPECT_TRUE(planned.cache_plan.empty());
}

TEST_F(Preemption, SparesTheOthersWhenAGroupIsTooLargeForTheWholePool) {
  fill_pool();
  const auto planned =
      planning_.plan(planning_.step().run(1, {{1, 8, 17, 0}}).run(2, {{2, 8, 1, 0}}).run(3, {{3, 8, 1, 0}}));
  EXPECT_EQ(planned.grant.running[0], RunningOutcome::never);
  EXPECT_EQ(planned.grant.running[1], RunningOutcome::scheduled);
  EXPECT_EQ(planned.grant.running[2], RunningOutcome::scheduled);
}

TEST_F(Preemption, SkipsGroupsBeyondTheTokenBudgetAndKeepsTheirBlocks) {
  planning_.plan(planning_.step()
                     .admit_group(1, count_from(0, 5))
                     .admit_group(2, count_from(100, 5))
                     .admit_group(3, count_from(200, 5)));
  Step step = planning_.step().run(1, {{1, 5, 1, 0}}).run(2, {{2, 5, 3, 0}}).run(3, {{3, 5, 1, 0}});
  step.token_budget = 2;
  const auto planned = planning_.plan(step);
  EXPECT_EQ(planned.grant.running[0], RunningOutcome::scheduled);
  EXPECT_EQ(planned.grant.running[1], RunningOutcome::skipped);
  EXPECT_EQ(planned.grant.running[2], RunningOutcome::scheduled);
  EXPECT_EQ(planning_.num_owned(), 6);
}

TEST_F(Preemption, PassesOverResultsAndReleasesOfGroupsThatWereRecomputedMeanwhile) {
  fill_pool();
  planning_.plan(decode(PreemptionMode::recompute));
  const auto planned = planning_.plan(
      planning_.step().fork_from(3, 30).sample(3, 9).mark_computed(3, 8).release(3).release(30).release(77));
  EXPECT_EQ(planned.grant.memory.device_blocks_free, 0);
  EXPECT_EQ(planning_.num_owned(), 6);
}

TEST_F(Preemption, GivesLookaheadSlotsAndTakesThemIntoAccount) {
  planning_.plan(planning_.step().admit_group(1, count_from(0, 7)));
  planning_.plan(planning_.step().run(1, {{1, 7, 1, 5}}));
  EXPECT_EQ(planning_.table(1).size(), 4U);
  EXPECT_EQ(planning_.stats().used_slots, 8);
  EXPECT_EQ(planning_.stats().allocated_slots, 16);
}

}  // namespace
}  // namespace pagoda::memory

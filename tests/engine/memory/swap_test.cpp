#include <gtest/gtest.h>

#include "tests/engine/memory/planning.hpp"

namespace pagoda::memory {
namespace {

BlockSpaceConfig without_cache(BlockSpaceConfig config) {
  config.enable_prefix_caching = false;
  return config;
}

/// Group 9 runs before group 1 and needs the whole pool, so group 1 is swapped out.
class Swap : public testing::Test {
 protected:
  explicit Swap(const BlockSpaceConfig& config = without_cache(small_pool(8, 4))) : planning_(config) {}

  GrantedStep push_out(std::initializer_list<SequenceNeed> needs_of_group_1) {
    planning_.plan(planning_.step().admit_group(9, {900}));
    return planning_.plan(
        planning_.step().run(9, {{9, 1, 27, 0}}, PreemptionMode::swap).run(1, needs_of_group_1, PreemptionMode::swap));
  }

  Planning planning_;
};

TEST_F(Swap, BringsAGroupBackWithTheBlocksItsStepNeeds) {
  planning_.plan(planning_.step().admit_group(1, count_from(0, 8)));
  const auto out = push_out({{1, 8, 1, 0}});
  ASSERT_EQ(out.grant.running[1], RunningOutcome::preempted_swap);
  const auto in = planning_.plan(planning_.step().release(9).swap_in(1, {{1, 8, 1, 0}}));
  EXPECT_EQ(in.grant.swapped[0], AllocStatus::ok);
  ASSERT_EQ(in.cache_plan.swap_in.size(), 2U);
  EXPECT_EQ(in.cache_plan.swap_in[0].from, out.cache_plan.swap_out[0].to);
  EXPECT_EQ(in.cache_plan.swap_in[1].from, out.cache_plan.swap_out[1].to);
  ASSERT_EQ(in.grant.table_deltas.size(), 1U);
  EXPECT_EQ(in.grant.table_deltas[0].first_block, 0);
  EXPECT_EQ(in.grant.table_deltas[0].blocks.count, 3);
  EXPECT_EQ(planning_.table(1)[0], in.cache_plan.swap_in[0].to);
  EXPECT_EQ(in.grant.memory.host_blocks_free, 4);
}

TEST_F(Swap, MovesASharedBlockOnceAndKeepsItShared) {
  planning_.plan(planning_.step().admit_group(1, count_from(0, 6)));
  planning_.plan(planning_.step().fork_from(1, 2).sample(1, 6).sample(2, 60));
  const auto out = push_out({{1, 6, 1, 0}, {2, 6, 1, 0}});
  ASSERT_EQ(out.grant.running[1], RunningOutcome::preempted_swap);
  EXPECT_EQ(out.cache_plan.swap_out.size(), 2U);
  EXPECT_EQ(out.grant.memory.host_blocks_free, 2);
  const auto in = planning_.plan(planning_.step().release(9).swap_in(1, {{1, 6, 1, 0}, {2, 6, 1, 0}}));
  EXPECT_EQ(in.grant.swapped[0], AllocStatus::ok);
  EXPECT_EQ(in.cache_plan.swap_in.size(), 2U);
  ASSERT_EQ(in.cache_plan.copies.size(), 1U) << "both write, so one of them into a copy";
  EXPECT_EQ(in.cache_plan.copies[0].from, in.cache_plan.swap_in[1].to);
  EXPECT_EQ(planning_.table(1)[0], planning_.table(2)[0]);
}

TEST_F(Swap, LeavesLookaheadSlotsBehind) {
  planning_.plan(planning_.step().admit_group(1, count_from(0, 6)));
  planning_.plan(planning_.step().run(1, {{1, 6, 1, 8}}));
  EXPECT_EQ(planning_.table(1).size(), 4U);
  EXPECT_EQ(push_out({{1, 7, 1, 0}}).cache_plan.swap_out.size(), 2U);
}

TEST_F(Swap, KeepsWaitingGroupsOutUntilSwappedOnesAreBack) {
  planning_.plan(planning_.step().admit_group(1, count_from(0, 8)));
  push_out({{1, 8, 1, 0}});
  const auto planned = planning_.plan(planning_.step().swap_in(1, {{1, 8, 1, 0}}).admit_group(3, {1}));
  EXPECT_EQ(planned.grant.swapped[0], AllocStatus::later);
  EXPECT_EQ(planned.grant.waiting[0].status, AllocStatus::later);
}

TEST_F(Swap, LetsThoseInFirstThatComeBeforeASwappedGroup) {
  planning_.plan(planning_.step().admit_group(1, count_from(0, 8)));
  push_out({{1, 8, 1, 0}});
  Step step = planning_.step();
  step.swap_in(1, {{1, 8, 1, 0}}).admit_group(3, {1}).admit_group(4, {2});
  step.swapped[0].num_waiting_before = 1;
  const auto planned = planning_.plan(step);
  EXPECT_EQ(planned.grant.waiting[0].status, AllocStatus::ok);
  EXPECT_EQ(planned.grant.swapped[0], AllocStatus::later);
  EXPECT_EQ(planned.grant.waiting[1].status, AllocStatus::later);
}

TEST_F(Swap, SaysNeverWhenAGroupHasOutgrownThePoolAndGoesOn) {
  planning_.plan(planning_.step().admit_group(1, count_from(0, 8)));
  push_out({{1, 8, 1, 0}});
  const auto planned = planning_.plan(planning_.step().release(9).swap_in(1, {{1, 8, 25, 0}}).admit_group(3, {1}));
  EXPECT_EQ(planned.grant.swapped[0], AllocStatus::never);
  EXPECT_EQ(planned.grant.waiting[0].status, AllocStatus::ok);
  EXPECT_EQ(planning_.plan(planning_.step().release(1)).grant.memory.host_blocks_free, 4);
}

TEST_F(Swap, ForgetsASwappedGroupThatIsAborted) {
  planning_.plan(planning_.step().admit_group(1, count_from(0, 6)));
  planning_.plan(planning_.step().fork_from(1, 2).sample(1, 6).sample(2, 60));
  push_out({{1, 6, 1, 0}, {2, 6, 1, 0}});
  EXPECT_EQ(planning_.plan(planning_.step().release(2)).grant.memory.host_blocks_free, 2);
  EXPECT_EQ(planning_.plan(planning_.step().release(1)).grant.memory.host_blocks_free, 4);
}

TEST_F(Swap, ForksAndHearsOfTokensWhileAGroupIsOut) {
  planning_.plan(planning_.step().admit_group(1, count_from(0, 6)));
  push_out({{1, 6, 1, 0}});
  planning_.plan(planning_.step().fork_from(1, 2).sample(1, 6).sample(2, 60).mark_computed(1, 6));
  const auto in = planning_.plan(planning_.step().release(9).swap_in(1, {{1, 6, 1, 0}, {2, 6, 1, 0}}));
  EXPECT_EQ(in.cache_plan.swap_in.size(), 2U);
  EXPECT_EQ(in.cache_plan.copies.size(), 1U);
}

/// As Swap, with a prefix cache.
class SwapAndCache : public Swap {
 protected:
  SwapAndCache() : Swap(small_pool(8, 6)) {}

  /// Group 2 joins group 1 with 8 equal tokens and its own after them; then group 1 is swapped out.
  GrantedStep push_out_sharing() {
    planning_.plan(planning_.step().admit_group(1, count_from(0, 10)));
    planning_.plan(planning_.step().admit_group(2, count_from(0, 9)));
    EXPECT_EQ(planning_.num_owned(), 4);
    return planning_.plan(
        planning_.step().run(2, {{2, 9, 21, 0}}, PreemptionMode::swap).run(1, {{1, 10, 1, 0}}, PreemptionMode::swap));
  }
};

TEST_F(SwapAndCache, MakesBlocksFindableAgainAfterTheyCameBack) {
  planning_.plan(planning_.step().admit_group(1, count_from(0, 8)));
  planning_.plan(planning_.step().mark_computed(1, 8));
  push_out({{1, 8, 1, 0}});
  planning_.plan(planning_.step().release(9).admit_group(5, count_from(500, 32)));  // evicts the old blocks
  planning_.plan(planning_.step().release(5).swap_in(1, {{1, 8, 1, 0}}));
  EXPECT_EQ(planning_.plan(planning_.step().admit_group(2, count_from(0, 9))).grant.waiting[0].num_cached_tokens, 8);
}

TEST_F(SwapAndCache, AfterAResetOfTheCacheBlocksThatComeBackAreNotFindable) {
  planning_.plan(planning_.step().admit_group(1, count_from(0, 8)));
  planning_.plan(planning_.step().mark_computed(1, 8));
  push_out({{1, 8, 1, 0}});
  Step resetting = planning_.step();
  resetting.reset_prefix_cache = true;
  planning_.plan(resetting);
  const auto in = planning_.plan(planning_.step().release(9).swap_in(1, {{1, 8, 1, 0}}));
  EXPECT_EQ(in.grant.swapped[0], AllocStatus::ok);
  EXPECT_EQ(in.cache_plan.swap_in.size(), 2U);
  EXPECT_EQ(planning_.plan(planning_.step().admit_group(2, count_from(0, 9))).grant.waiting[0].num_cached_tokens, 0);
}

TEST_F(SwapAndCache, AfterAResetOfTheCacheBlocksThatWereLeftWithOthersAreLost) {
  push_out_sharing();
  Step resetting = planning_.step();
  resetting.reset_prefix_cache = true;
  planning_.plan(resetting);
  const auto in = planning_.plan(planning_.step().release(9).release(2).swap_in(1, {{1, 10, 1, 0}}));
  EXPECT_EQ(in.grant.swapped[0], AllocStatus::never);
  EXPECT_EQ(planning_.plan(planning_.step().release(1)).grant.memory.host_blocks_free, 6);
}

TEST_F(SwapAndCache, FindsBlocksThatNobodyHasTakenSince) {
  planning_.plan(planning_.step().admit_group(1, count_from(0, 8)));
  const auto out = push_out({{1, 8, 1, 0}});
  EXPECT_EQ(out.cache_plan.swap_out.size(), 2U);
  // Group 9 has taken 7 of the 8 blocks; one still has its old content.
  const auto in = planning_.plan(planning_.step().release(9).swap_in(1, {{1, 8, 1, 0}}));
  EXPECT_EQ(in.grant.swapped[0], AllocStatus::ok);
  EXPECT_EQ(in.cache_plan.swap_in.size(), 1U);
  EXPECT_EQ(in.grant.memory.host_blocks_free, 6);
  EXPECT_EQ(planning_.num_owned(), 3);
}

TEST_F(SwapAndCache, MovesOnlyWhatNobodyElseHolds) {
  const auto out = push_out_sharing();
  ASSERT_EQ(out.grant.running[1], RunningOutcome::preempted_swap);
  EXPECT_EQ(out.cache_plan.swap_out.size(), 1U);
  EXPECT_EQ(out.grant.memory.host_blocks_free, 5);
  planning_.plan(planning_.step().release(9).swap_in(1, {{1, 10, 1, 0}}));
  const auto in = planning_.plan(planning_.step().release(2).swap_in(1, {{1, 10, 1, 0}}));
  EXPECT_EQ(in.grant.swapped[0], AllocStatus::ok) << "the shared blocks are still in the cache";
  EXPECT_EQ(in.cache_plan.swap_in.size(), 1U);
  EXPECT_EQ(planning_.num_owned(), 3);
}

TEST_F(SwapAndCache, SaysNeverWhenWhatWasLeftWithOthersIsGone) {
  push_out_sharing();
  planning_.plan(planning_.step().release(2).admit_group(5, count_from(500, 32)));
  const auto in = planning_.plan(planning_.step().release(5).swap_in(1, {{1, 10, 1, 0}}));
  EXPECT_EQ(in.grant.swapped[0], AllocStatus::never);
  EXPECT_EQ(planning_.plan(planning_.step().release(1)).grant.memory.host_blocks_free, 6);
}

TEST_F(SwapAndCache, WaitsForAStepThatComputesAnewWhatWasLeftWithOthers) {
  push_out_sharing();
  planning_.plan(planning_.step().release(2).admit_group(5, count_from(500, 32)));
  planning_.plan(planning_.step().release(5).admit_group(6, count_from(0, 9)));
  const auto waits = planning_.plan(planning_.step().wait_for(0).swap_in(1, {{1, 10, 1, 0}}));
  EXPECT_EQ(waits.grant.swapped[0], AllocStatus::later);
  EXPECT_EQ(planning_.plan(planning_.step().swap_in(1, {{1, 10, 1, 0}})).grant.swapped[0], AllocStatus::ok);
}

TEST_F(SwapAndCache, TheCheaperPreemptionCountsNeitherTokensNorBlocksThatOthersHold) {
  const auto outcome = [](double recompute_us_per_token) {
    Planning planning(small_pool(8, 6));
    planning.plan(planning.step().admit_group(1, count_from(0, 10)));
    planning.plan(planning.step().admit_group(2, count_from(0, 9)));
    Step step = planning.step();
    step.costs = {recompute_us_per_token, 10};
    step.run(2, {{2, 9, 21, 0}}).run(1, {{1, 10, 1, 0}}, PreemptionMode::cheaper);
    return planning.plan(step).grant.running[1];
  };
  // Of 10 tokens in 3 blocks, 2 tokens in 1 block are its own.
  EXPECT_EQ(outcome(4.9), RunningOutcome::preempted_recompute);
  EXPECT_EQ(outcome(5.1), RunningOutcome::preempted_swap);
}

}  // namespace
}  // namespace pagoda::memory

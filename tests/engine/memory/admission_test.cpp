#include <gtest/gtest.h>

#include "tests/engine/memory/planning.hpp"

namespace pagoda::memory {
namespace {

TEST(Admission, GivesAPromptTheBlocksOfItsTokensAndTheirTable) {
  Planning planning(small_pool());
  const auto planned = planning.plan(planning.step().admit_group(1, count_from(0, 9)));
  EXPECT_EQ(planned.grant.waiting[0].status, AllocStatus::ok);
  EXPECT_EQ(planned.grant.waiting[0].num_new_tokens, 9);
  EXPECT_EQ(planned.grant.waiting[0].num_cached_tokens, 0);
  EXPECT_EQ(planning.table(1).size(), 3U);
  EXPECT_FALSE(planned.grant.has_cache_plan);
  EXPECT_EQ(planned.grant.memory.device_blocks_free, 7);
}

TEST(Admission, StopsAtTheFirstGroupThatHasToWait) {
  Planning planning(small_pool(4));
  const auto planned = planning.plan(
      planning.step().admit_group(1, count_from(0, 8)).admit_group(2, count_from(50, 12)).admit_group(3, {1}));
  EXPECT_EQ(planned.grant.waiting[0].status, AllocStatus::ok);
  EXPECT_EQ(planned.grant.waiting[1].status, AllocStatus::later);
  EXPECT_EQ(planned.grant.waiting[2].status, AllocStatus::later);
}

TEST(Admission, TurnsAwayForGoodWhatAnEmptyPoolCannotHoldAndGoesOnBehindIt) {
  Planning planning(small_pool(4));
  const auto planned = planning.plan(planning.step().admit_group(1, count_from(0, 17)).admit_group(2, {1}));
  EXPECT_EQ(planned.grant.waiting[0].status, AllocStatus::never);
  EXPECT_EQ(planned.grant.waiting[1].status, AllocStatus::ok);
}

TEST(Admission, TakesAPromptThatFillsThePoolForItCanStillSampleOneToken) {
  Planning planning(small_pool(4));
  const auto planned = planning.plan(planning.step().admit_group(1, count_from(0, 16)));
  EXPECT_EQ(planned.grant.waiting[0].status, AllocStatus::ok);
  const auto next = planning.plan(planning.step().sample(1, 3).mark_computed(1, 16).run(1, {{1, 16, 1, 0}}));
  EXPECT_EQ(next.grant.running[0], RunningOutcome::never);
  EXPECT_EQ(planning.num_owned(), 0);
}

TEST(Admission, LeavesTheWatermarkFreeUnlessNothingRuns) {
  BlockSpaceConfig config = small_pool(10);
  config.watermark = 0.2;
  Planning planning(config);
  EXPECT_EQ(planning.plan(planning.step().admit_group(1, count_from(0, 36))).grant.waiting[0].status, AllocStatus::ok);
  EXPECT_EQ(planning.plan(planning.step().admit_group(2, {1})).grant.waiting[0].status, AllocStatus::later);
  auto release_then_fill = planning.step().release(1).admit_group(3, count_from(0, 28)).admit_group(4, {1, 2, 3, 4, 5});
  const auto planned = planning.plan(release_then_fill);
  EXPECT_EQ(planned.grant.waiting[0].status, AllocStatus::ok);
  EXPECT_EQ(planned.grant.waiting[1].status, AllocStatus::later) << "3 blocks are free, 2 of them are the watermark";
}

TEST(Admission, StartsWithThePartOfAPromptThatTheBudgetHolds) {
  Planning planning(small_pool());
  Step step = planning.step();
  step.token_budget = 7;
  step.offer(1, count_from(0, 5));
  step.offer(2, count_from(50, 9)).may_chunk = true;
  step.offer(3, {1}).may_chunk = true;
  const auto planned = planning.plan(step);
  EXPECT_EQ(planned.grant.waiting[0].num_new_tokens, 5);
  EXPECT_EQ(planned.grant.waiting[1].status, AllocStatus::ok);
  EXPECT_EQ(planned.grant.waiting[1].num_new_tokens, 2);
  EXPECT_EQ(planning.table(2).size(), 1U) << "blocks come with the chunks";
  EXPECT_EQ(planned.grant.waiting[2].status, AllocStatus::later);
}

TEST(Admission, RunsAPromptBeyondTheWholeBudgetInAStepOfItsOwn) {
  Planning planning(small_pool());
  planning.plan(planning.step().admit_group(1, {1, 2}));
  Step step = planning.step().sample(1, 5).run(1, {{1, 2, 1, 0}}).admit_group(2, count_from(0, 9));
  step.token_budget = 8;
  EXPECT_EQ(planning.plan(step).grant.waiting[0].status, AllocStatus::later);
  step = planning.step().release(1).admit_group(2, count_from(0, 9)).admit_group(3, {1});
  step.token_budget = 8;
  const auto planned = planning.plan(step);
  EXPECT_EQ(planned.grant.waiting[0].num_new_tokens, 9);
  EXPECT_EQ(planned.grant.waiting[1].status, AllocStatus::later);
}

TEST(Admission, ReservesTheBlocksThatAPromptInProgressWillStillNeed) {
  Planning planning(small_pool(6));
  Step step = planning.step();
  step.token_budget = 4;
  step.offer(1, count_from(0, 16)).may_chunk = true;
  EXPECT_EQ(planning.plan(step).grant.waiting[0].num_new_tokens, 4);
  auto planned = planning.plan(planning.step().admit_group(2, count_from(50, 12)));
  EXPECT_EQ(planned.grant.waiting[0].status, AllocStatus::later) << "5 blocks are free, 3 of them are promised";
  EXPECT_EQ(planned.grant.memory.device_blocks_free, 5);
  planned = planning.plan(planning.step().run(1, {{1, 4, 12, 0}}).admit_group(2, count_from(50, 8)));
  EXPECT_EQ(planned.grant.running[0], RunningOutcome::scheduled);
  EXPECT_EQ(planned.grant.waiting[0].status, AllocStatus::ok) << "nothing is promised any more";
}

TEST(Admission, TakesNobodyWhileGroupsArePreempted) {
  Planning planning(small_pool(4));
  planning.plan(planning.step().admit_group(1, count_from(0, 8)).admit_group(2, count_from(50, 8)));
  Step step =
      planning.step().sample(1, 7).sample(2, 7).run(1, {{1, 8, 1, 0}}).run(2, {{2, 8, 1, 0}}).admit_group(3, {1});
  const auto planned = planning.plan(step);
  EXPECT_EQ(planned.grant.running[1], RunningOutcome::preempted_recompute);
  EXPECT_EQ(planned.grant.waiting[0].status, AllocStatus::later);
}

}  // namespace
}  // namespace pagoda::memory

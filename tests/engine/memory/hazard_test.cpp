#include <gtest/gtest.h>

#include "tests/engine/memory/planning.hpp"

namespace pagoda::memory {
namespace {

// In these tests every step is planned while the step before it is in flight.

TEST(Hazards, ASwapOutWaitsForTheStepInFlightThatWritesItsBlocks) {
  Planning planning(small_pool(4));
  planning.plan(planning.step().admit_group(1, count_from(0, 4)).admit_group(2, count_from(50, 7)));  // step 1
  planning.plan(planning.step().wait_for(0).run(1, {{1, 4, 1, 0}}).run(2, {{2, 7, 1, 0}}));           // step 2
  const auto planned = planning.plan(                                                                 // step 3
      planning.step().wait_for(1).run(1, {{1, 5, 4, 0}}).run(2, {{2, 8, 1, 0}}, PreemptionMode::swap));
  ASSERT_EQ(planned.cache_plan.swap_out.size(), 2U);
  for (const BlockMove& move : planned.cache_plan.swap_out) EXPECT_EQ(move.last_touched_step, 2U);
}

TEST(Hazards, AMoveWaitsForNothingWhenAllStepsThatTouchedItsBlocksHavePassed) {
  Planning planning(small_pool(4));
  planning.plan(planning.step().admit_group(1, count_from(0, 4)).admit_group(2, count_from(50, 8)));
  planning.plan(planning.step().run(1, {{1, 4, 1, 0}}));
  const auto planned = planning.plan(  // step 3: step 2 is in flight, but group 2 is not in it
      planning.step().wait_for(1).run(1, {{1, 5, 4, 0}}).run(2, {{2, 8, 1, 0}}, PreemptionMode::swap));
  ASSERT_EQ(planned.cache_plan.swap_out.size(), 2U);
  for (const BlockMove& move : planned.cache_plan.swap_out) EXPECT_EQ(move.last_touched_step, 0U);
}

TEST(Hazards, ACopyIntoAFreedBlockWaitsForTheLastStepOfItsFormerOwner) {
  Planning planning(small_pool(3, 0));
  planning.plan(planning.step().admit_group(1, {1, 2}).admit_group(2, count_from(50, 5)));               // step 1
  planning.plan(planning.step().wait_for(0).run(2, {{2, 5, 1, 0}}));                                     // step 2
  planning.plan(planning.step().wait_for(1).fork_from(1, 3).sample(1, 3).sample(3, 4).release(2));       // step 3
  const auto planned = planning.plan(planning.step().wait_for(1).run(1, {{1, 2, 1, 0}, {3, 2, 1, 0}}));  // step 4
  ASSERT_EQ(planned.cache_plan.copies.size(), 1U);
  EXPECT_EQ(planned.cache_plan.copies[0].last_touched_step, 2U);
}

TEST(Hazards, ACopyWaitsForTheStepInFlightThatWritesWhatItCopies) {
  Planning planning(small_pool());
  planning.plan(planning.step().admit_group(1, {1, 2}));  // step 1
  const auto planned = planning.plan(                     // step 2
      planning.step().wait_for(0).fork_from(1, 3).sample(3, 4).run(1, {{1, 2, 1, 0}, {3, 2, 1, 0}}));
  ASSERT_EQ(planned.cache_plan.copies.size(), 1U);
  EXPECT_EQ(planned.cache_plan.copies[0].last_touched_step, 1U);
}

TEST(Hazards, HostBlocksRememberTheirLastMove) {
  Planning planning(small_pool(2, 1));
  planning.plan(planning.step().admit_group(1, {1, 2}).admit_group(2, {3, 4}));  // step 1
  planning.plan(planning.step().wait_for(1).run(1, {{1, 2, 3, 0}}).run(2, {{2, 2, 1, 0}}, PreemptionMode::swap));  // 2
  const auto in = planning.plan(planning.step().wait_for(1).release(1).swap_in(2, {{2, 2, 1, 0}}));  // step 3
  ASSERT_EQ(in.cache_plan.swap_in.size(), 1U);
  EXPECT_EQ(in.cache_plan.swap_in[0].last_touched_step, 2U);
  planning.plan(planning.step().wait_for(1).admit_group(4, {7}));  // step 4
  const auto out = planning.plan(                                  // step 5
      planning.step().wait_for(1).run(4, {{4, 1, 4, 0}}).run(2, {{2, 3, 1, 0}}, PreemptionMode::swap));
  ASSERT_EQ(out.cache_plan.swap_out.size(), 1U);
  EXPECT_EQ(out.cache_plan.swap_out[0].last_touched_step, 3U);
}

TEST(Hazards, ASwapOutWaitsForTheSwapInThatReadItsHostBlockBefore) {
  Planning planning(small_pool(3, 1));
  planning.plan(planning.step().admit_group(1, {1}).admit_group(2, {2}).admit_group(3, {3}));  // step 1
  planning.plan(                                                                               // step 2
      planning.step().run(1, {{1, 1, 4, 0}}).run(3, {{3, 1, 1, 0}}, PreemptionMode::swap));
  planning.plan(planning.step().release(1).swap_in(3, {{3, 1, 1, 0}}));  // step 3
  const auto planned = planning.plan(                                    // step 4, 3 is in flight
      planning.step().wait_for(2).run(3, {{3, 2, 7, 0}}).run(2, {{2, 1, 1, 0}}, PreemptionMode::swap));
  ASSERT_EQ(planned.cache_plan.swap_out.size(), 1U);
  EXPECT_EQ(planned.cache_plan.swap_out[0].last_touched_step, 3U) << "group 2 itself last ran in step 1";
}

TEST(Hazards, ACachedBlockThatIsTheSourceOfACopyIsNotSwappedOverInTheSamePlan) {
  Planning planning(small_pool(3, 2));
  // Group 2 is swapped out. Group 1 keeps a child whose last block is full, cached, and owned by it alone.
  planning.plan(planning.step().admit_group(1, count_from(0, 7)).admit_group(2, {50}));
  planning.plan(planning.step().run(1, {{1, 7, 1, 4}}).run(2, {{2, 1, 1, 0}}, PreemptionMode::swap));
  planning.plan(planning.step().fork_from(1, 3).sample(3, 70).sample(1, 7).mark_computed(1, 8));
  auto planned = planning.plan(planning.step().release(1).run(1, {{3, 7, 1, 0}}).swap_in(2, {{2, 1, 1, 0}}));
  EXPECT_EQ(planned.grant.running[0], RunningOutcome::scheduled)
      << "in place of lookahead slots it does not ask for now";
  ASSERT_EQ(planned.cache_plan.copies.size(), 1U);
  EXPECT_EQ(planned.grant.swapped[0], AllocStatus::later) << "the swap-in would run before the copy";
  planned = planning.plan(planning.step().run(1, {{3, 8, 1, 0}}).swap_in(2, {{2, 1, 1, 0}}));
  EXPECT_EQ(planned.grant.running[0], RunningOutcome::scheduled);
}

}  // namespace
}  // namespace pagoda::memory

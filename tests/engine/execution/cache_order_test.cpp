#include "engine/execution/cache_order.hpp"

#include <gtest/gtest.h>

namespace pagoda::execution {
namespace {

TEST(CacheOrder, APlanWaitsForTheLastStepThatAnyOfItsMovesWaitsFor) {
  CachePlan plan;
  EXPECT_EQ(last_touched_step(plan), 0U);
  plan.copies = {{0, 1, 4}};
  plan.swap_in = {{0, 1, 2}, {1, 2, 5}};
  plan.swap_out = {{2, 1, 3}};
  EXPECT_EQ(last_touched_step(plan), 5U);
}

TEST(CacheOrder, WaitsUntilTheLastStepThatTouchesTheBlocksIsEnqueued) {
  CacheOrder order;
  order.plan_arrived(3, 2);
  order.step_enqueued(1);
  EXPECT_FALSE(order.next());
  order.step_enqueued(2);
  const auto ready = order.next();
  ASSERT_TRUE(ready);
  EXPECT_EQ(ready->plan, 3U);
  EXPECT_EQ(ready->after, 2U);
}

TEST(CacheOrder, TellsANewWorkerAlsoOfPlansThatADeadOneWasTold) {
  CacheOrder order;
  order.plan_arrived(4, 0);
  ASSERT_TRUE(order.next());  // sent to a worker that dies
  order.connect(4);
  EXPECT_FALSE(order.next());
  EXPECT_EQ(order.last_plan(), 4U);
}

TEST(CacheOrder, LetsPlansOfLostStepsGoWhenANewWorkerBegins) {
  CacheOrder order;
  order.plan_arrived(6, 5);  // step 5 was never enqueued
  EXPECT_FALSE(order.next());
  order.connect(7);
  EXPECT_TRUE(order.next());
  EXPECT_EQ(order.last_plan(), 6U);
}

}  // namespace
}  // namespace pagoda::execution

#include "engine/execution/cache_order.hpp"

#include <gtest/gtest.h>

namespace pagoda::execution {
namespace {

TEST(CacheOrder, a_plan_waits_for_the_last_step_that_any_of_its_moves_waits_for) {
  CachePlan plan;
  EXPECT_EQ(last_touched_step(plan), 0U);
  plan.copies = {{0, 1, 4}};
  plan.swap_in = {{0, 1, 2}, {1, 2, 5}};
  plan.swap_out = {{2, 1, 3}};
  EXPECT_EQ(last_touched_step(plan), 5U);
}

TEST(CacheOrder, waits_until_the_last_step_that_touches_the_blocks_is_enqueued) {
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

TEST(CacheOrder, tells_a_new_worker_also_of_plans_that_a_dead_one_was_told) {
  CacheOrder order;
  order.plan_arrived(4, 0);
  ASSERT_TRUE(order.next());  // told to a worker that dies
  order.connect(4);
  EXPECT_FALSE(order.next());
  EXPECT_EQ(order.last_plan(), 4U);
}

TEST(CacheOrder, lets_plans_of_lost_steps_go_when_a_new_worker_begins) {
  CacheOrder order;
  order.plan_arrived(6, 5);  // step 5 was never enqueued
  EXPECT_FALSE(order.next());
  order.connect(7);
  EXPECT_TRUE(order.next());
  EXPECT_EQ(order.last_plan(), 6U);
}

}  // namespace
}  // namespace pagoda::execution

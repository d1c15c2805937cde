#include "engine/execution/step_order.hpp"

#include <utility>
#include <vector>

#include <gtest/gtest.h>

namespace pagoda::execution {
namespace {

using Part = StepOrder::Part;
using Parts = std::vector<std::pair<StepId, Part>>;

/// Returns all parts that may be enqueued.
Parts take(StepOrder& order) {
  Parts parts;
  while (const auto ready = order.next()) parts.emplace_back(ready->step, ready->part);
  return parts;
}

TEST(StepOrder, NothingIsEnqueuedBeforeTheCacheEngineHasConnected) {
  StepOrder order;
  EXPECT_TRUE(order.step_arrived(1, false, true));
  EXPECT_FALSE(order.step_arrived(2, false, false));
  order.masks_arrived(1);
  EXPECT_EQ(take(order), Parts{});
  order.connected(0);
  EXPECT_EQ(take(order), (Parts{{1, Part::all}, {2, Part::all}}));
}

TEST(StepOrder, AStepRunsButForItsSamplingUntilItsMasksCome) {
  StepOrder order;
  order.step_arrived(1, false, true);
  order.connected(0);
  order.step_arrived(2, false, true);
  order.step_arrived(3, false, false);
  EXPECT_EQ(take(order), (Parts{{1, Part::model}}));
  order.masks_arrived(1);
  EXPECT_EQ(take(order), (Parts{{1, Part::sampling}, {2, Part::model}}));
  EXPECT_EQ(take(order), Parts{});
  order.masks_arrived(2);
  EXPECT_EQ(take(order), (Parts{{2, Part::sampling}, {3, Part::all}}));
}

TEST(StepOrder, AStepWaitsForItsPlanWhateverItsMasks) {
  StepOrder order;
  order.step_arrived(1, true, true);
  order.connected(0);
  order.masks_arrived(1);
  EXPECT_EQ(take(order), Parts{});
  order.plan_enqueued(1);
  const auto ready = order.next();
  ASSERT_TRUE(ready);
  EXPECT_TRUE(ready->waits_for_plan);
  EXPECT_EQ(ready->part, Part::all);

  order.step_arrived(2, true, true);
  order.plan_enqueued(2);
  EXPECT_EQ(take(order), (Parts{{2, Part::model}}));
  order.masks_arrived(2);
  const auto rest = order.next();
  ASSERT_TRUE(rest);
  EXPECT_FALSE(rest->waits_for_plan);
  EXPECT_EQ(rest->part, Part::sampling);
}

}  // namespace
}  // namespace pagoda::execution

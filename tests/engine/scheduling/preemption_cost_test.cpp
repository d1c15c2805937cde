#include "engine/scheduling/preemption_cost.hpp"

#include <gtest/gtest.h>

namespace pagoda::scheduling {
namespace {

TEST(PreemptionCost, GuessesUntilSomethingWasMeasured) {
  const PreemptionCost cost;
  EXPECT_EQ(cost.us_per_token(), PreemptionCost::kGuessedUsPerToken);
  EXPECT_EQ(cost.measured_swap_bytes_per_s(), 0);
  EXPECT_EQ(cost.swap_us(1000), 2 * 1000 / PreemptionCost::kGuessedSwapBytesPerUs);
}

TEST(PreemptionCost, LearnsWhatAPromptTokenTakesFromStepsThatMostlyRunPrompts) {
  PreemptionCost cost;
  cost.step_measured(100, 0, 1'000'000);   // only decodes
  cost.step_measured(100, 49, 1'000'000);  // mostly decodes
  EXPECT_EQ(cost.us_per_token(), PreemptionCost::kGuessedUsPerToken);
  cost.step_measured(100, 80, 2000);
  EXPECT_DOUBLE_EQ(cost.us_per_token(), 20);
  for (int i = 0; i < 100; ++i) cost.step_measured(100, 100, 500);
  EXPECT_NEAR(cost.us_per_token(), 5, 0.01) << "the first measurement has faded";
}

TEST(PreemptionCost, LargeSwapsWeighMoreThanSmallOnes) {
  PreemptionCost cost;
  cost.swap_measured(10, 100);
  cost.swap_measured(1'000'000, 100);
  EXPECT_GT(cost.measured_swap_bytes_per_s(), 4e9);
  EXPECT_LT(cost.swap_us(1'000'000), 600);
}

TEST(PreemptionCost, ASwapBelowTheClocksStepHasNoInfiniteSpeed) {
  PreemptionCost cost;
  cost.swap_measured(4096, 0);
  EXPECT_DOUBLE_EQ(cost.measured_swap_bytes_per_s(), 4096e6);
}

}  // namespace
}  // namespace pagoda::scheduling

#include "engine/scheduling/step_adapters.hpp"

#include <gtest/gtest.h>

namespace pagoda::scheduling {
namespace {

TEST(StepAdapters, AStepHasPlacesForSomeAndAnyNumberOfRowsOfEach) {
  StepAdapters adapters(2);
  EXPECT_TRUE(adapters.add(5) && adapters.add(7) && adapters.add(5) && adapters.add(0));
  EXPECT_FALSE(adapters.add(6));
  EXPECT_TRUE(adapters.contains(0) && adapters.contains(5) && adapters.contains(7));
  EXPECT_FALSE(adapters.contains(6));
}

TEST(StepAdapters, BehindAGroupWithoutAPlaceOnlyTheBaseModelEnters) {
  StepAdapters adapters(2);
  EXPECT_TRUE(adapters.admit(5));
  EXPECT_TRUE(adapters.admit(7));
  EXPECT_FALSE(adapters.admit(6));
  EXPECT_FALSE(adapters.admit(5)) << "else its place is never free";
  EXPECT_TRUE(adapters.admit(0));
}

}  // namespace
}  // namespace pagoda::scheduling

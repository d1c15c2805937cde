#include "engine/execution/step_deadlines.hpp"

#include <gtest/gtest.h>

namespace pagoda::execution {
namespace {

constexpr TimeUs kMs = 1000;
constexpr TimeUs kSecond = 1'000'000;

/// Runs steps of `num_tokens` that take `duration` each, one after the other; returns the id of the next one.
StepId run(StepDeadlines& deadlines, StepId first, int count, std::int64_t num_tokens, TimeUs duration, TimeUs& now) {
  for (StepId step = first; step < first + static_cast<StepId>(count); ++step) {
    deadlines.sent(step, num_tokens, 0, now);
    now += duration;
    deadlines.ended(step, now);
  }
  return first + static_cast<StepId>(count);
}

TEST(StepDeadlines, NothingInFlightHasNoDeadline) {
  StepDeadlines deadlines(0);
  EXPECT_FALSE(deadlines.next());
  deadlines.sent(1, 10, 0, 5);
  EXPECT_EQ(deadlines.next()->step, 1U);
  deadlines.ended(1, 10);
  EXPECT_FALSE(deadlines.next());
}

TEST(StepDeadlines, AStepHasTenTimesWhatStepsOfItsSizeTookButASecondAtLeast) {
  StepDeadlines deadlines(0);
  TimeUs now = 0;
  StepId next = run(deadlines, 1, 1, 4, kMs, now);  // a first step is no measure
  next = run(deadlines, next, 20, 4, 50 * kMs, now);
  deadlines.sent(next, 5, 0, now);
  EXPECT_EQ(deadlines.next()->allowed_us, kSecond);
  deadlines.ended(next, now + 50 * kMs);
  now += 50 * kMs;
  next = run(deadlines, next + 1, 20, 300, 400 * kMs, now);
  deadlines.sent(next, 300, 0, now);
  EXPECT_EQ(deadlines.next()->at_us, now + 4 * kSecond);
  deadlines.ended(next, now + 400 * kMs);
  now += 400 * kMs;
  deadlines.sent(next + 1, 1000, 0, now);  // none of that size: as if tokens of the next smaller ones took their time
  EXPECT_EQ(deadlines.next()->allowed_us, 8 * kSecond);
  deadlines.ended(next + 1, now);
  deadlines.sent(next + 2, 4, 0, now);  // small steps have their own measure
  EXPECT_EQ(deadlines.next()->allowed_us, kSecond);
}

TEST(StepDeadlines, TheTimeOfAStepBeginsWhenTheOneBeforeItHasEnded) {
  StepDeadlines deadlines(2 * kSecond);
  deadlines.sent(1, 1, 0, 0);
  deadlines.sent(2, 1, 0, 10);
  EXPECT_EQ(deadlines.next()->at_us, 2 * kSecond);
  deadlines.ended(1, kSecond);
  EXPECT_EQ(deadlines.next()->step, 2U);
  EXPECT_EQ(deadlines.next()->at_us, 3 * kSecond);
}

TEST(StepDeadlines, ADeviceThatBeginsHasTimeForItsFirstStepAndKeepsWhatWasMeasured) {
  StepDeadlines deadlines(0);
  TimeUs now = 0;
  StepId next = run(deadlines, 1, 20, 4, 200 * kMs, now);
  deadlines.sent(next, 4, 0, now);
  EXPECT_EQ(deadlines.next()->allowed_us, 2 * kSecond);
  deadlines.begin();
  EXPECT_FALSE(deadlines.next());
  deadlines.sent(next + 1, 4, 0, now);
  EXPECT_GE(deadlines.next()->allowed_us, 30 * kSecond);
  deadlines.ended(next + 1, now + 5 * kSecond);
  now += 5 * kSecond;
  deadlines.sent(next + 2, 4, 0, now);
  EXPECT_EQ(deadlines.next()->allowed_us, 2 * kSecond);
}

TEST(StepDeadlines, MovesHaveTimeOfTheirOwn) {
  StepDeadlines deadlines(0);
  TimeUs now = 0;
  const StepId next = run(deadlines, 1, 20, 4, 20 * kMs, now);
  deadlines.sent(next, 4, 1 << 30, now);
  EXPECT_GT(deadlines.next()->allowed_us, 50 * kSecond);
}

}  // namespace
}  // namespace pagoda::execution

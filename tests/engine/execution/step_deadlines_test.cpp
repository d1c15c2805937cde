#include "engine/execution/step_deadlines.hpp"

#include <gtest/gtest.h>

namespace pagoda::execution {
namespace {

constexpr TimeUs kMs = 1000;
constexpr TimeUs kSecond = 1'000'000;

/// Runs `count` steps of `num_tokens` that take `duration` each, one after the other. Returns the id of the next step.
StepId run(StepDeadlines& deadlines, StepId first, int count, std::int64_t num_tokens, TimeUs duration, TimeUs& now) {
  for (StepId step = first; step < first + static_cast<StepId>(count); ++step) {
    deadlines.sent(step, {.num_tokens = num_tokens}, now);
    now += duration;
    deadlines.ended(step, now);
  }
  return first + static_cast<StepId>(count);
}

TEST(StepDeadlines, NothingInFlightHasNoDeadline) {
  StepDeadlines deadlines(0);
  EXPECT_FALSE(deadlines.next());
  deadlines.sent(1, {.num_tokens = 10}, 5);
  EXPECT_EQ(deadlines.next()->step, 1U);
  deadlines.ended(1, 10);
  EXPECT_FALSE(deadlines.next());
}

TEST(StepDeadlines, AStepHasNoDeadlineBeforeItsMasksAreSent) {
  StepDeadlines deadlines(2 * kSecond);
  deadlines.sent(1, {.num_tokens = 10}, 0, /*waits_for_masks=*/true);
  EXPECT_FALSE(deadlines.next());
  deadlines.masks_sent(1, 5 * kSecond);
  EXPECT_EQ(deadlines.next()->at_us, 7 * kSecond);
}

TEST(StepDeadlines, AStepHasTenTimesWhatStepsOfItsSizeTookButASecondAtLeast) {
  StepDeadlines deadlines(0);
  TimeUs now = 0;
  StepId next = run(deadlines, 1, 1, 4, kMs, now);  // the first step is not measured
  next = run(deadlines, next, 20, 4, 50 * kMs, now);
  deadlines.sent(next, {.num_tokens = 5}, now);
  EXPECT_EQ(deadlines.next()->allowed_us, kSecond);
  deadlines.ended(next, now + 50 * kMs);
  now += 50 * kMs;
  next = run(deadlines, next + 1, 20, 300, 400 * kMs, now);
  deadlines.sent(next, {.num_tokens = 300}, now);
  EXPECT_EQ(deadlines.next()->at_us, now + 4 * kSecond);
  deadlines.ended(next, now + 400 * kMs);
  now += 400 * kMs;
  deadlines.sent(next + 1, {.num_tokens = 1000},
                 now);  // no step of this size: as if its tokens took the time of those of the next smaller steps
  EXPECT_EQ(deadlines.next()->allowed_us, 8 * kSecond);
  deadlines.ended(next + 1, now);
  deadlines.sent(next + 2, {.num_tokens = 4}, now);  // small steps have their own measure
  EXPECT_EQ(deadlines.next()->allowed_us, kSecond);
}

TEST(StepDeadlines, StepsInWhichTheDraftModelReadsDoNotShortenThoseOfAPrompt) {
  StepDeadlines deadlines(0);
  TimeUs now = 0;
  StepId next = run(deadlines, 1, 20, 100, 2 * kSecond, now);
  for (int i = 0; i < 500; ++i) {
    deadlines.sent(next, {.num_tokens = 1, .num_pairs = 30'000, .num_draft_tokens = 64, .num_draft_pairs = 64 * 30'000},
                   now);
    EXPECT_GE(deadlines.next()->allowed_us, kSecond);
    now += 200 * kMs;
    deadlines.ended(next++, now);
  }
  deadlines.sent(next, {.num_tokens = 100}, now);
  EXPECT_GE(deadlines.next()->allowed_us, 20 * kSecond);
}

TEST(StepDeadlines, AStepThatLoadsAdaptersHasAMinuteMoreForEach) {
  StepDeadlines deadlines(0);
  TimeUs now = 0;
  const StepId next = run(deadlines, 1, 20, 4, 50 * kMs, now);
  deadlines.sent(next, {.num_tokens = 4, .num_loads = 2}, now);
  EXPECT_EQ(deadlines.next()->allowed_us, 121 * kSecond);
  now += 30 * kSecond;
  deadlines.ended(next, now);
  deadlines.sent(next + 1, {.num_tokens = 4}, now);  // its duration is no measure
  EXPECT_EQ(deadlines.next()->allowed_us, kSecond);
}

TEST(StepDeadlines, TheTimeOfAStepBeginsWhenTheOneBeforeItHasEnded) {
  StepDeadlines deadlines(2 * kSecond);
  deadlines.sent(1, {.num_tokens = 1}, 0);
  deadlines.sent(2, {.num_tokens = 1}, 10);
  EXPECT_EQ(deadlines.next()->at_us, 2 * kSecond);
  deadlines.ended(1, kSecond);
  EXPECT_EQ(deadlines.next()->step, 2U);
  EXPECT_EQ(deadlines.next()->at_us, 3 * kSecond);
}

TEST(StepDeadlines, ADeviceThatBeginsHasTimeForItsFirstStepAndKeepsWhatWasMeasured) {
  StepDeadlines deadlines(0);
  TimeUs now = 0;
  StepId next = run(deadlines, 1, 20, 4, 200 * kMs, now);
  deadlines.sent(next, {.num_tokens = 4}, now);
  EXPECT_EQ(deadlines.next()->allowed_us, 2 * kSecond);
  deadlines.begin();
  EXPECT_FALSE(deadlines.next());
  deadlines.sent(next + 1, {.num_tokens = 4}, now);
  EXPECT_GE(deadlines.next()->allowed_us, 30 * kSecond);
  deadlines.ended(next + 1, now + 5 * kSecond);
  now += 5 * kSecond;
  deadlines.sent(next + 2, {.num_tokens = 4}, now);
  EXPECT_EQ(deadlines.next()->allowed_us, 2 * kSecond);
}

TEST(StepDeadlines, MovesHaveTimeOfTheirOwn) {
  StepDeadlines deadlines(0);
  TimeUs now = 0;
  const StepId next = run(deadlines, 1, 20, 4, 20 * kMs, now);
  deadlines.sent(next, {.num_tokens = 4, .moved_bytes = 1 << 30}, now);
  EXPECT_GT(deadlines.next()->allowed_us, 50 * kSecond);
}

TEST(StepDeadlines, TheFirstStepOfADeviceHasNoLessThanOthersHad) {
  StepDeadlines deadlines(0);
  TimeUs now = 0;
  StepId next = run(deadlines, 1, 3, 4, 15 * kSecond, now);
  deadlines.begin();
  deadlines.sent(next, {.num_tokens = 4}, now);
  EXPECT_GE(deadlines.next()->allowed_us, 150 * kSecond);
}

TEST(StepDeadlines, WhatNothingIsKnownOfIsJudgedByTheModel) {
  constexpr std::int64_t kWeightBytes = 16'000'000'000;
  StepDeadlines deadlines(0, kWeightBytes);
  deadlines.sent(1, {.num_tokens = 2048}, 0);
  // 8 billion parameters in BF16, read at 200 MB/s and multiplied at 5 GFLOP/s.
  EXPECT_GT(deadlines.next()->allowed_us, (80 + 6'500) * kSecond);
  StepDeadlines small(0, 270'000'000);
  small.sent(1, {.num_tokens = 1}, 0);
  EXPECT_LT(small.next()->allowed_us, 65 * kSecond);
}

TEST(StepDeadlines, LongerContextsHaveMoreTime) {
  StepDeadlines deadlines(0);
  TimeUs now = 0;
  StepId step = run(deadlines, 1, 1, 16, kMs, now);
  deadlines.sent(step, {.num_tokens = 16, .num_pairs = 16 * 100}, now);
  deadlines.ended(step, now += 200 * kMs);
  deadlines.sent(++step, {.num_tokens = 16, .num_pairs = 16 * 2000}, now);
  EXPECT_EQ(deadlines.next()->allowed_us, 40 * kSecond);  // all of the time may have been that of the pairs
  deadlines.ended(step, now += 2 * kSecond);
  deadlines.sent(++step, {.num_tokens = 16, .num_pairs = 16 * 100}, now);
  EXPECT_EQ(deadlines.next()->allowed_us, 20 * kSecond);
  deadlines.ended(step, now += 2 * kSecond);
  deadlines.sent(++step, {.num_tokens = 16, .num_pairs = std::int64_t{1} << 60}, now);
  EXPECT_EQ(deadlines.next()->allowed_us, 600 * kSecond);  // the upper limit, after which a hanging step is found
}

TEST(StepDeadlines, AStepThatWasGivenUpHasTwiceTheTimeNextTime) {
  StepDeadlines deadlines(0);
  TimeUs now = 0;
  StepId step = run(deadlines, 1, 20, 4, 200 * kMs, now);
  deadlines.sent(step, {.num_tokens = 4}, now);
  EXPECT_EQ(deadlines.next()->allowed_us, 2 * kSecond);
  deadlines.gave_up();
  deadlines.begin();
  step = run(deadlines, step + 1, 1, 1, kMs, now);
  deadlines.sent(step, {.num_tokens = 4}, now);
  EXPECT_EQ(deadlines.next()->allowed_us, 4 * kSecond);
  deadlines.gave_up();
}

TEST(StepDeadlines, ATimeInWhichNobodyLookedDoesNotCount) {
  StepDeadlines deadlines(2 * kSecond);
  deadlines.sent(1, {.num_tokens = 1}, 0);
  deadlines.sent(2, {.num_tokens = 1}, 0);
  deadlines.paused(10 * kSecond);
  EXPECT_EQ(deadlines.next()->at_us, 12 * kSecond);
  deadlines.ended(1, 11 * kSecond);
  deadlines.paused(kSecond);
  EXPECT_EQ(deadlines.next()->at_us, 14 * kSecond);
}

}  // namespace
}  // namespace pagoda::execution

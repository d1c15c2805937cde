#include <sstream>

#include <gtest/gtest.h>

#include "engine/trace/tracer.hpp"

namespace pagoda::trace {
namespace {

void add(RecentSpans& spans, std::int64_t step, TimeUs finished_us, Row row = Row::scheduler) {
  spans.add(row, "step", finished_us - 10, finished_us, {{"step", step}, {"tokens", 3}});
}

TEST(RecentSpans, RecordsFromTheFirstQuestionOn) {
  RecentSpans spans;
  EXPECT_FALSE(spans.is_on());
  add(spans, 1, 100);
  const auto first = spans.since(0, 10, 200);
  EXPECT_TRUE(first.spans.empty());
  EXPECT_TRUE(spans.is_on());
  add(spans, 2, 300);
  const auto told = spans.since(first.last_number, 10, 400);
  ASSERT_EQ(told.spans.size(), 1U);
  EXPECT_EQ(told.spans[0].started_us, 290);
  EXPECT_EQ(told.spans[0].finished_us, 300);
  ASSERT_EQ(told.spans[0].args().size(), 2U);
  EXPECT_EQ(told.spans[0].args()[0].value, 2);
  EXPECT_STREQ(told.spans[0].args()[1].name, "tokens");
  EXPECT_TRUE(spans.since(told.last_number, 10, 500).spans.empty());
}

TEST(RecentSpans, TurnsItselfOffWhenNobodyComesBack) {
  RecentSpans spans;
  auto told = spans.since(0, 10, 1000);
  add(spans, 1, 1000 + RecentSpans::kWatchUs);
  EXPECT_TRUE(spans.is_on());
  add(spans, 2, 1001 + RecentSpans::kWatchUs);
  EXPECT_FALSE(spans.is_on());
  told = spans.since(told.last_number, 10, 2000 + RecentSpans::kWatchUs);
  EXPECT_TRUE(told.spans.empty()) << "what it had is gone with it";
  add(spans, 3, 2100 + RecentSpans::kWatchUs);
  EXPECT_EQ(spans.since(told.last_number, 10, 2200 + RecentSpans::kWatchUs).spans.size(), 1U);
}

TEST(RecentSpans, TellsTheLastOfManyInOrder) {
  RecentSpans spans;
  spans.since(0, 10, 0);
  const auto many = static_cast<std::int64_t>(RecentSpans::kMaxSpans) + 500;
  for (std::int64_t step = 1; step <= many; ++step) add(spans, step, step);
  auto told = spans.since(0, 4, many);
  ASSERT_EQ(told.spans.size(), 4U);
  EXPECT_EQ(told.spans.front().args()[0].value, many - 3);
  EXPECT_EQ(told.spans.back().args()[0].value, many);
  told = spans.since(0, 1 << 20, many);
  ASSERT_EQ(told.spans.size(), RecentSpans::kMaxSpans);
  EXPECT_EQ(told.spans.front().args()[0].value, 501);
  told = spans.since(static_cast<std::uint64_t>(many) - 2, 1 << 20, many);
  EXPECT_EQ(told.spans.size(), 2U);
}

TEST(RecentSpans, TellsEachOfTheDeviceThatIsKept) {
  RecentSpans spans;
  spans.since(0, 10, 0);
  for (std::int64_t step = 1; step <= 100; ++step)
    add(spans, step, step, step % 10 == 0 ? Row::device : Row::scheduler);
  const auto told = spans.since(0, 4, 100);
  ASSERT_EQ(told.spans.size(), 13U);
  for (std::size_t i = 0; i < 9; ++i) EXPECT_EQ(told.spans[i].args()[0].value, 10 * static_cast<std::int64_t>(i + 1));
  EXPECT_EQ(told.spans[9].args()[0].value, 97);
  EXPECT_EQ(spans.since(95, 4, 100).spans.size(), 4U);
}

TEST(Tracer, IsOnForAFileOrForSomebodyWhoWatches) {
  EXPECT_FALSE(is_on(nullptr));
  const auto nobody = std::make_shared<Tracer>(nullptr);
  EXPECT_FALSE(is_on(nobody));
  nobody->span(Row::device, "step", 1, 2, {});
  nobody->recent().since(0, 1, 0);
  EXPECT_TRUE(is_on(nobody));
  const auto file = std::make_shared<Tracer>(std::make_unique<StepTrace>(std::make_unique<std::ostringstream>(), 10));
  EXPECT_TRUE(is_on(file));
}

}  // namespace
}  // namespace pagoda::trace

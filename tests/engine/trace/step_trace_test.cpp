#include "engine/trace/step_trace.hpp"

#include <algorithm>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

namespace pagoda::trace {
namespace {

/// Keeps the text of a trace beyond the trace's end.
class Text : public std::stringbuf {
 public:
  explicit Text(std::string& to) : to_(to) {}
  ~Text() override { to_ = str(); }

 private:
  std::string& to_;
};

class TextStream : public std::ostream {
 public:
  explicit TextStream(std::string& to) : std::ostream(nullptr), text_(to) { rdbuf(&text_); }

 private:
  Text text_;
};

std::size_t count(const std::string& text, const std::string& what) {
  std::size_t n = 0;
  for (auto at = text.find(what); at != std::string::npos; at = text.find(what, at + 1)) ++n;
  return n;
}

TEST(StepTrace, NamesEveryRowAndClosesItsDocument) {
  std::string text;
  { StepTrace(std::make_unique<TextStream>(text), 10).span(Row::scheduler, "plan step", 1000, 1250, {{"step", 7}}); }
  EXPECT_EQ(count(text, "\"thread_name\""), kRowNames.size());
  EXPECT_NE(text.find(R"({"ph":"X","pid":1,"tid":2,"ts":1000,"dur":250,"name":"plan step","args":{"step":7}})"),
            std::string::npos)
      << text;
  EXPECT_NE(text.find(R"("otherData":{"events":1,"dropped_events":0}})"), std::string::npos) << text;
}

TEST(StepTrace, GivesEachProcessARowOfItsOwn) {
  std::string text;
  {
    StepTrace trace(std::make_unique<TextStream>(text), 10);
    EXPECT_EQ(trace.add_process("the \"first\""), 2);
    const int second = trace.add_process("second");
    trace.span(Row::device, "step", 1, 2, {}, second);
  }
  const auto events = nlohmann::json::parse(text).at("traceEvents");
  const auto about = [&](int process, const char* what) {
    const auto found = std::ranges::find_if(
        events, [&](const nlohmann::json& event) { return event.at("pid") == process && event.at("name") == what; });
    return found == events.end() ? nlohmann::json() : *found;
  };
  EXPECT_EQ(about(2, "process_name")["args"]["name"], "the \"first\"");
  EXPECT_EQ(about(3, "process_name")["args"]["name"], "second");
  EXPECT_EQ(about(2, "thread_name")["args"]["name"], "device");
  EXPECT_EQ(about(3, "step")["tid"], about(3, "thread_name")["tid"]);
}

TEST(StepTrace, DropsAndCountsWhatIsBeyondItsLimit) {
  std::string text;
  {
    StepTrace trace(std::make_unique<TextStream>(text), 3);
    for (int i = 0; i < 5; ++i) trace.span(Row::device, "step", i, i + 1, {});
  }
  EXPECT_EQ(count(text, "\"ph\":\"X\""), 3U);
  EXPECT_NE(text.find(R"("dropped_events":2)"), std::string::npos);
}

TEST(StepTrace, KeepsWholeLinesUnderManyThreads) {
  constexpr std::size_t kThreads = 4;
  constexpr std::size_t kSpans = 500;
  std::string text;
  {
    StepTrace trace(std::make_unique<TextStream>(text), 1 << 20);
    std::vector<std::thread> threads;
    for (std::size_t t = 0; t < kThreads; ++t) {
      threads.emplace_back([&] {
        for (std::size_t i = 0; i < kSpans; ++i) trace.span(Row::router, "submit", 1, 2, {{"request", 3}, {"n", 4}});
      });
    }
    for (auto& thread : threads) thread.join();
  }
  EXPECT_EQ(count(text,
                  "\n"
                  R"({"ph":"X","pid":1,"tid":1,"ts":1,"dur":1,"name":"submit","args":{"request":3,"n":4}})"),
            kThreads * kSpans);
}

}  // namespace
}  // namespace pagoda::trace

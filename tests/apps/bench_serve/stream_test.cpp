#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "apps/bench_serve/completion_event.hpp"
#include "apps/bench_serve/sse_reader.hpp"

namespace pagoda::bench_serve {
namespace {

std::vector<std::string> events_of(const std::vector<std::string>& pieces) {
  SseReader reader;
  std::vector<std::string> events;
  for (const auto& piece : pieces) {
    reader.feed(piece, [&](std::string_view data) { events.emplace_back(data); });
  }
  return events;
}

const std::string kStream =
    ": a comment\r\nevent: x\r\ndata: {\"a\": 1}\r\n\r\ndata:two\ndata: lines\n\nid: 3\n\ndata: \r\rdata: [DONE]\n\n";
const std::vector<std::string> kEvents{"{\"a\": 1}", "two\nlines", "", "[DONE]"};

TEST(SseReader, TakesEventsApart) {
  EXPECT_EQ(events_of({kStream}), kEvents);
}

TEST(SseReader, WhereverBytesAreCut) {
  for (std::size_t a = 0; a <= kStream.size(); ++a) {
    for (std::size_t b = a; b <= kStream.size(); ++b) {
      const auto events = events_of({kStream.substr(0, a), kStream.substr(a, b - a), kStream.substr(b)});
      ASSERT_EQ(events, kEvents) << a << " " << b;
    }
  }
}

TEST(SseReader, AnEventWithoutItsEndIsNone) {
  EXPECT_TRUE(events_of({"data: x\n"}).empty());
}

TEST(CompletionEvent, ContentIsTextOfAnyKind) {
  for (const char* content :
       {R"({"choices":[{"text":"a"}]})", R"({"choices":[{"delta":{"content":"a"}}]})",
        R"({"choices":[{"delta":{"reasoning_content":"a"}}]})", R"({"choices":[{"delta":{"reasoning":"a"}}]})",
        R"({"choices":[{"delta":{"tool_calls":[{"index":0}]}}]})", R"({"choices":[{"text":""},{"text":"b"}]})"}) {
    EXPECT_TRUE(read_event(content).has_content) << content;
    EXPECT_EQ(read_event(content).error, "") << content;
  }
  for (const char* none :
       {R"({"choices":[{"text":""}]})", R"({"choices":[{"delta":{"role":"assistant","content":""}}]})",
        R"({"choices":[{"delta":{"content":null}}]})", R"({"choices":[]})", R"({"choices":null})", "{}",
        R"({"choices":[1,null,"a"]})"}) {
    EXPECT_FALSE(read_event(none).has_content) << none;
    EXPECT_EQ(read_event(none).error, "") << none;
  }
}

TEST(CompletionEvent, EndsAndUsageAreSeen) {
  EXPECT_TRUE(read_event("[DONE]").is_done);
  EXPECT_TRUE(read_event(R"({"choices":[{"text":"","finish_reason":"stop"}]})").has_finished);
  EXPECT_FALSE(read_event(R"({"choices":[{"text":"","finish_reason":null}]})").has_finished);
  const auto usage = read_event(R"({"choices":[],"usage":{"prompt_tokens":7,"completion_tokens":9}})");
  EXPECT_EQ(usage.prompt_tokens, 7);
  EXPECT_EQ(usage.completion_tokens, 9);
  EXPECT_FALSE(read_event(R"({"choices":[],"usage":null})").prompt_tokens);
  EXPECT_FALSE(read_event(R"({"usage":{"prompt_tokens":"7","completion_tokens":-1}})").completion_tokens);
}

TEST(CompletionEvent, ErrorsAreTold) {
  EXPECT_EQ(read_event(R"({"error":{"message":"full","type":"x"}})").error, "full");
  EXPECT_EQ(read_event(R"({"error":"full"})").error, "full");
  EXPECT_EQ(read_event(R"({"error":{"code":3}})").error, R"({"code":3})");
  EXPECT_NE(read_event("<html>").error, "");
  EXPECT_NE(read_event("[1]").error, "");
}

TEST(CompletionEvent, TheMessageOfAnErrorsBody) {
  EXPECT_EQ(error_message(R"({"error":{"message":"full"}})"), "full");
  EXPECT_EQ(error_message(R"({"detail":"no"})"), "no");
  EXPECT_EQ(error_message(R"({"object":"error","message":"no"})"), "no");
  EXPECT_EQ(error_message("<html>"), "<html>");
  EXPECT_EQ(error_message(std::string(1000, 'x')).size(), 200);
}

}  // namespace
}  // namespace pagoda::bench_serve

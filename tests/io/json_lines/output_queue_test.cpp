#include "io/json_lines/output_queue.hpp"

#include <sstream>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

namespace pagoda::json_lines {
namespace {

using nlohmann::json;

std::vector<json> taken(OutputQueue& queue) {
  std::string text;
  queue.take(text);
  std::vector<json> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(json::parse(line));
  return lines;
}

SequenceDelta delta(std::int32_t index, std::string text, TokenId id) {
  return {index, std::move(text), {id}, {}};
}

TEST(OutputQueue, EventsBecomeLinesOneByOneWhileFewBytesWait) {
  OutputQueue queue(1000);
  EXPECT_TRUE(queue.empty());
  queue.add_delta(1, "a", delta(0, "x", 1));
  queue.add_delta(1, "a", delta(0, "y", 2));
  queue.line() += "{\"event\":\"pong\"}\n";
  EXPECT_FALSE(queue.empty());
  const auto lines = taken(queue);
  ASSERT_EQ(lines.size(), 3U);
  EXPECT_EQ(lines[1]["text"], "y");
  EXPECT_EQ(lines[2]["event"], "pong");
  EXPECT_TRUE(queue.empty());
  EXPECT_EQ(queue.bytes(), 0U);
}

TEST(OutputQueue, DeltasOfOneSequenceAreMergedWhenManyBytesWait) {
  OutputQueue queue(10);
  queue.add_delta(1, "a", delta(0, "first", 1));
  for (TokenId i = 0; i < 100; ++i) {
    queue.add_delta(1, "a", delta(0, "x", i));
    queue.add_delta(1, "a", delta(1, "y", i));
    queue.add_delta(2, "b", delta(0, "z", i));
  }
  const auto lines = taken(queue);
  ASSERT_EQ(lines.size(), 4U);
  EXPECT_EQ(lines[1]["text"], std::string(100, 'x'));
  EXPECT_EQ(lines[1]["token_ids"].size(), 100U);
  EXPECT_EQ(lines[2]["index"], 1);
  EXPECT_EQ(lines[3]["id"], "b");
  EXPECT_EQ(lines[3]["token_ids"][99], 99);
}

TEST(OutputQueue, ATerminalLineComesAfterAllDeltasOfItsRequest) {
  OutputQueue queue(0);
  queue.add_delta(1, "a", delta(0, "x", 1));
  queue.add_delta(2, "b", delta(0, "x", 1));
  queue.add_delta(1, "a", delta(0, "y", 2));
  queue.line() += "{\"event\":\"done\",\"id\":\"a\"}\n";
  queue.add_delta(2, "b", delta(0, "y", 2));
  queue.line() += "{\"event\":\"done\",\"id\":\"b\"}\n";
  const auto lines = taken(queue);
  std::map<std::string, std::string> text;
  std::map<std::string, bool> ended;
  for (const auto& line : lines) {
    const auto id = line["id"].get<std::string>();
    EXPECT_FALSE(ended[id]);
    if (line["event"] == "done") ended[id] = true;
    if (line["event"] == "delta") text[id] += line["text"].get<std::string>();
  }
  EXPECT_EQ(text["a"], "xy");
  EXPECT_EQ(text["b"], "xy");
}

TEST(OutputQueue, ANewRequestWithAnOldIdStartsItsOwnLine) {
  OutputQueue queue(0);
  queue.add_delta(1, "a", delta(0, "old", 1));
  queue.line() += "{\"event\":\"done\",\"id\":\"a\"}\n";
  queue.add_delta(2, "a", delta(0, "new", 1));
  const auto lines = taken(queue);
  ASSERT_EQ(lines.size(), 3U);
  EXPECT_EQ(lines[0]["text"], "old");
  EXPECT_EQ(lines[2]["text"], "new");
}

TEST(OutputQueue, ItsSizeFollowsWhatWaits) {
  OutputQueue queue(0);
  std::size_t before = 0;
  for (TokenId i = 0; i < 50; ++i) {
    queue.add_delta(1, "a", delta(0, "0123456789", i));
    queue.line() += "{\"event\":\"pong\"}\n";
    EXPECT_GT(queue.bytes(), before);
    before = queue.bytes();
  }
  std::string text;
  queue.take(text);
  EXPECT_GT(before, text.size() / 2);
  EXPECT_LT(before, text.size() * 2);
}

}  // namespace
}  // namespace pagoda::json_lines

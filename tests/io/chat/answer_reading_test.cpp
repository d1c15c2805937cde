#include "io/chat/answer_reading.hpp"

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "tests/io/chat/known_dialects.hpp"

namespace pagoda::chat {
namespace {

AnswerReading reading_of(AnswerDialect dialect, bool in_thinking = false) {
  AnswerReading reading;
  reading.dialect = std::make_shared<const AnswerDialect>(std::move(dialect));
  reading.options.in_thinking = in_thinking;
  return reading;
}

AnswerReading thinking(bool in_thinking = false) {
  AnswerDialect dialect;
  dialect.thinking = Marks{"<think>", "</think>"};
  return reading_of(std::move(dialect), in_thinking);
}

SequenceResult output_of(const std::vector<std::string>& tokens) {
  SequenceResult output;
  for (const std::string& token : tokens) {
    output.text += token;
    output.token_ids.push_back(1);
    output.text_ends.push_back(output.text.size());
  }
  return output;
}

std::optional<std::int64_t> count(const AnswerReading& reading, const std::vector<std::string>& tokens) {
  RequestResult result;
  result.outputs.push_back(output_of(tokens));
  return num_thinking_tokens(reading, result);
}

TEST(ThinkingTokens, AreThoseBetweenTheMarks) {
  EXPECT_EQ(count(thinking(), {"<think>", "\n", "Let", " me", "\n", "</think>", "\n\n", "Hi"}), 4);
  EXPECT_EQ(count(thinking(), {"\n", "<think>", "a", "</think>", "b", "<think>", "c", "</think>"}), 1);
  EXPECT_EQ(count(thinking(), {"<think>", "</think>", "b"}), 0);
  EXPECT_EQ(count(thinking(), {"Hi", "<think>", "a"}), 0);
  EXPECT_EQ(count(thinking(), {}), 0);
}

TEST(ThinkingTokens, BeginWithTheAnswerWhereThePromptDoes) {
  EXPECT_EQ(count(thinking(true), {"\n", "So", "</think>", "x"}), 2);
  EXPECT_EQ(count(thinking(true), {"</think>", "x"}), 0);
}

TEST(ThinkingTokens, AreToldFromMarksOfSeveralTokens) {
  EXPECT_EQ(count(thinking(), {"<", "think", ">", "a", "b", "</", "think", ">", "c"}), 2);
  EXPECT_EQ(count(thinking(), {"<think>", "a", "</", "thin", "g>", "b", "</think>"}), 5);
  EXPECT_EQ(count(thinking(), {"<think>", "a", ".</", "think", ">", "c"}), 2);
}

TEST(ThinkingTokens, GoOnToTheEndOfAnAnswerThatIsCutOff) {
  EXPECT_EQ(count(thinking(), {"<think>", "a", "</"}), 2);
  EXPECT_EQ(count(thinking(), {"<think>", "a", ""}), 2) << "half a character";
}

TEST(ThinkingTokens, ComeSeveralTimesWhereContentHasMarks) {
  EXPECT_EQ(count(reading_of(testing::harmony()),
                  {"<|channel|>", "analysis",    "<|message|>", "a",           "b", "<|end|>", "<|start|>",
                   "assistant",   "<|channel|>", "analysis",    "<|message|>", "c", "<|end|>", "<|start|>",
                   "assistant",   "<|channel|>", "final",       "<|message|>", "x", "y"}),
            3);
}

TEST(ThinkingTokens, AreThoseOfAllOutputs) {
  RequestResult result;
  result.outputs.push_back(output_of({"<think>", "a", "</think>", "x"}));
  result.outputs.push_back(output_of({"<think>", "a", "b"}));
  EXPECT_EQ(num_thinking_tokens(thinking(), result), 3);
}

TEST(ThinkingTokens, AreNotToldOfModelsThatDoNotThink) {
  EXPECT_EQ(count(reading_of({}), {"<think>", "a", "</think>"}), std::nullopt);
}

}  // namespace
}  // namespace pagoda::chat

#include "io/chat/answer_reading.hpp"

#include <memory>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "engine/text/answer_stop_matcher.hpp"
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

GenerateRequest scoped(const AnswerDialect& dialect, const std::string& prompt) {
  GenerateRequest request;
  request.prompt = prompt;
  request.sampling.stop = {"STOP"};
  scope_stop_strings(dialect, request);
  return request;
}

TEST(ScopeOfStopStrings, IsTheWholeTextOfModelsThatDoNotThink) {
  EXPECT_FALSE(scoped({}, "a").sampling.answer_marks);
}

TEST(ScopeOfStopStrings, BeginsInTheThinkingWhereThePromptDoes) {
  AnswerDialect dialect;
  dialect.thinking = Marks{"<think>", "</think>"};
  EXPECT_TRUE(scoped(dialect, "user: a\n<think>\n").sampling.answer_marks->begins_in_thinking);
  EXPECT_FALSE(scoped(dialect, "user: a\n").sampling.answer_marks->begins_in_thinking);
  EXPECT_FALSE(scoped(dialect, "user: a\n<think>\n\n</think>\n\n").sampling.answer_marks->begins_in_thinking);
}

TEST(ScopeOfStopStrings, IsWhatAnswersHaveAsContent) {
  AnswerDialect plain;
  plain.thinking = Marks{"<think>\n", "\n</think>\n\n"};
  std::mt19937 random(11);
  std::size_t num_stopped = 0;
  std::size_t num_rounds = 0;
  for (const AnswerDialect& known : {plain, testing::harmony(), testing::command_r7b()}) {
    AnswerDialect dialect = known;
    dialect.calls.reset();  // stop strings count in calls, too
    std::vector<std::string> parts{"STOP", "a", " ", "\n", dialect.thinking->begin, dialect.thinking->end};
    if (!dialect.glue.empty()) parts.push_back(dialect.glue);
    for (const Marks& marks : dialect.content) parts.insert(parts.end(), {marks.begin, marks.end});
    std::erase(parts, "");
    for (int round = 0; round < 2000; ++round, ++num_rounds) {
      std::string text;
      for (std::size_t n = random() % 9; n > 0; --n) text += parts[random() % parts.size()];
      const bool in_thinking = random() % 2 == 0;
      AnswerMarks marks = *scoped(dialect, "a").sampling.answer_marks;
      marks.begins_in_thinking = in_thinking;
      text::AnswerStopMatcher matcher(std::make_shared<const text::StopStrings>(std::vector<std::string>{"STOP"}),
                                      false, std::make_shared<const text::AnswerScope>(marks));
      const bool has_stopped = matcher.push(text).stop || matcher.finish(true).stop;
      const bool is_content =
          read_answer(reading_of(dialect, in_thinking), text).content().find("STOP") != std::string::npos;
      EXPECT_EQ(has_stopped, is_content) << text;
      num_stopped += has_stopped ? 1 : 0;
    }
  }
  EXPECT_GT(num_stopped, num_rounds / 10);
  EXPECT_LT(num_stopped, num_rounds * 9 / 10);
}

TEST(ThinkingTokens, AreNotToldOfModelsThatDoNotThink) {
  EXPECT_EQ(count(reading_of({}), {"<think>", "a", "</think>"}), std::nullopt);
}

}  // namespace
}  // namespace pagoda::chat

#include "apps/parser_names.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace pagoda::apps {
namespace {

using testing::EndsWith;
using testing::HasSubstr;

chat::AnswerDialect dialect_with(const std::string& before_name) {
  chat::AnswerDialect dialect;
  dialect.thinking = chat::Marks{"<think>", "</think>"};
  dialect.calls = chat::ToolCallForm{.call = {{chat::CallPart::Kind::text, before_name},
                                              {chat::CallPart::Kind::name},
                                              {chat::CallPart::Kind::text, "x"},
                                              {chat::CallPart::Kind::arguments}}};
  return dialect;
}

TEST(ParserNames, that_stand_for_what_was_found_have_no_effect) {
  const auto hermes = dialect_with("<tool_call>\n{\"name\": \"");
  EXPECT_EQ(compare_tool_call_parser("hermes", &hermes),
            "--tool-call-parser hermes has no effect: the chat template has tool calls with "
            "\"<tool_call>\\n{\"name\": \"\" already");
  EXPECT_THAT(compare_reasoning_parser("deepseek_r1", &hermes), EndsWith(" already"));
}

TEST(ParserNames, that_stand_for_something_else_are_told_so) {
  const auto coder = dialect_with("<tool_call>\n<function=");
  EXPECT_THAT(compare_tool_call_parser("qwen3_coder", &coder), EndsWith(" already"));
  EXPECT_THAT(compare_tool_call_parser("hermes", &coder), HasSubstr("is the name of another dialect"));
  EXPECT_THAT(compare_tool_call_parser("llama3_json", &coder), HasSubstr("--answer-dialect FILE"));
  EXPECT_THAT(compare_reasoning_parser("mistral", &coder), HasSubstr("is the name of another dialect"));
  EXPECT_THAT(compare_tool_call_parser("of_mine", &coder), HasSubstr("is an unknown name"));
}

TEST(ParserNames, of_models_without_calls_or_templates_are_told_so) {
  const chat::AnswerDialect plain;
  EXPECT_THAT(compare_tool_call_parser("hermes", &plain), HasSubstr("the chat template shows no tool calls"));
  EXPECT_THAT(compare_reasoning_parser("qwen3", &plain), HasSubstr("the chat template shows no thoughts"));
  EXPECT_THAT(compare_tool_call_parser("hermes", nullptr), HasSubstr("the model has no chat template"));
}

}  // namespace
}  // namespace pagoda::apps

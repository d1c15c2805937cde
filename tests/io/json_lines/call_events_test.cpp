// Tools over JSON lines: what a request asks for, and calls as events and in `done`.

#include "io/json_lines/call_events.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "io/json_lines/protocol.hpp"
#include "tests/io/http/tool_requests.hpp"

namespace pagoda::json_lines {
namespace {

using http::openai_tools;
using http::tool_prompts;
using nlohmann::json;
using testing::HasSubstr;

constexpr const char* kAnswer =
    "<think>\nWhere?\n</think>\n\nI look.\n<tool_call>\n{\"name\": \"weather\", \"arguments\": {\"city\": "
    "\"R\xC3\xB6m\"}}\n</tool_call>\n<tool_call>\n{\"name\": \"now\", \"arguments\": {}}\n</tool_call>";

std::string line_with(const std::string& fields) {
  return R"({"id":"a","messages":[{"role":"user","content":"Hi"}],)" + fields + "}";
}

GenerateOp asked(const std::string& fields) {
  auto message = parse_line(line_with(fields), &tool_prompts());
  EXPECT_TRUE(message) << fields << ": " << message.error().error.message;
  return message ? std::get<GenerateOp>(std::move(*message)) : GenerateOp{};
}

std::string refused_param(const std::string& fields) {
  const auto message = parse_line(line_with(fields), &tool_prompts());
  return message ? "" : message.error().error.param;
}

std::vector<json> lines_of(const std::string& text) {
  std::vector<json> lines;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = text.find('\n', at);
    lines.push_back(json::parse(text.substr(at, end - at)));
    at = end + 1;
  }
  return lines;
}

json done_of(const std::string& text, const chat::AnswerReading* reading, FinishReason reason = FinishReason::stop) {
  std::string out;
  append_done(out, "a", http::result_of(text, reason), false, reading);
  return lines_of(out).at(0)["outputs"][0];
}

TEST(JsonLinesTools, HoldTheAnswerAsInTheOtherInterfaces) {
  const auto op = asked(openai_tools());
  ASSERT_TRUE(op.reading);
  ASSERT_TRUE(op.request->sampling.structured_outputs);
  EXPECT_THAT(op.request->sampling.structured_outputs->text, HasSubstr("triggered_tags"));
  EXPECT_THAT(*op.request->prompt, HasSubstr("\"name\": \"weather\""));
  EXPECT_TRUE(op.request->sampling.shows_marks);
  const auto named = asked(openai_tools(R"(,"tool_choice":{"type":"function","function":{"name":"now"}})"));
  EXPECT_THAT(named.request->sampling.structured_outputs->text, testing::Not(HasSubstr("\"city\"")));
  EXPECT_THAT(*named.request->prompt, HasSubstr("\"name\": \"weather\"")) << "the prompt has them all";
}

TEST(JsonLinesTools, ThatMayNotBeCalledAreForThePromptAlone) {
  const auto op = asked(openai_tools(R"(,"tool_choice":"none")"));
  EXPECT_FALSE(op.reading);
  EXPECT_FALSE(op.request->sampling.structured_outputs);
  EXPECT_FALSE(op.request->sampling.shows_marks);
  EXPECT_THAT(*op.request->prompt, HasSubstr("weather"));
}

TEST(JsonLinesTools, StructuredOutputsOfAConversationBeginBehindTheThinking) {
  const auto op = asked(R"("structured_outputs":{"regex":"a+"})");
  EXPECT_EQ(op.request->sampling.structured_outputs->kind, GrammarKind::structural_tag);
  EXPECT_EQ(done_of("<think>\nb\n</think>\n\naa", op.reading.get())["message"]["content"], "aa");
  const auto not_thinking =
      asked(R"("structured_outputs":{"regex":"a+"},"chat_template_kwargs":{"enable_thinking":false})");
  EXPECT_EQ(not_thinking.request->sampling.structured_outputs->kind, GrammarKind::regex);
}

TEST(JsonLinesTools, AreRefusedByName) {
  EXPECT_EQ(refused_param(R"("tools":3)"), "tools");
  EXPECT_EQ(refused_param(R"("tool_choice":"required")"), "tool_choice");
  EXPECT_EQ(refused_param(openai_tools(R"(,"tool_choice":"some")")), "tool_choice");
  EXPECT_EQ(refused_param(openai_tools(R"(,"parallel_tool_calls":1)")), "parallel_tool_calls");
  EXPECT_EQ(parse_line(R"({"id":"a","prompt":"Hi",)" + openai_tools() + "}", &tool_prompts()).error().error.param,
            "tools");
  const auto no_form =
      parse_line(line_with(openai_tools()), std::make_unique<chat::ChatPrompts>(http::chat_prompts()).get());
  ASSERT_FALSE(no_form);
  EXPECT_EQ(no_form.error().error.param, "tools");
}

TEST(JsonLinesTools, WhatTheEngineRefusesOfThemIsTheirs) {
  const Error refused{ErrorCode::invalid_request, "tool f: no", "structured_outputs"};
  const auto param = [&](const std::string& fields) {
    return request_error(refused, asked(fields).reading.get()).param;
  };
  EXPECT_EQ(param(openai_tools()), "tools");
  EXPECT_EQ(param(openai_tools(R"(,"structured_outputs":{"regex":"a"})")), "structured_outputs");
  EXPECT_EQ(param(R"("structured_outputs":{"regex":"a"})"), "structured_outputs");
  EXPECT_EQ(request_error(refused, nullptr).param, "structured_outputs");
}

TEST(JsonLinesTools, DoneHasTheTextAsItIsAndTheMessageThatItIs) {
  const auto op = asked(openai_tools());
  const auto output = done_of(kAnswer, op.reading.get());
  EXPECT_EQ(output["text"], kAnswer);
  EXPECT_EQ(output["finish_reason"], "stop");
  EXPECT_EQ(output["message"]["content"], "I look.");
  EXPECT_EQ(output["message"]["reasoning"], "Where?");
  const auto& calls = output["message"]["tool_calls"];
  ASSERT_EQ(calls.size(), 2U);
  EXPECT_EQ(calls[0]["function"], json({{"name", "weather"}, {"arguments", "{\"city\": \"R\xC3\xB6m\"}"}}));
  EXPECT_FALSE(done_of(kAnswer, nullptr).contains("message"));
}

TEST(JsonLinesTools, AStreamHasAnEventForEachCallOfDoneHoweverItIsCut) {
  const auto op = asked(openai_tools());
  const std::string whole = kAnswer;
  for (std::size_t length = 1; length <= whole.size(); ++length) {               // a limit may cut it anywhere
    if ((static_cast<unsigned char>(whole[length]) & 0xC0U) == 0x80U) continue;  // text comes in whole characters
    const std::string text = whole.substr(0, length);
    const auto message = done_of(text, op.reading.get(), FinishReason::length)["message"];
    const auto expected = message.value("tool_calls", json::array());
    for (const std::size_t size : {std::size_t{1}, std::size_t{7}, length}) {
      CallEvents calls(op.reading);
      std::string out;
      for (std::size_t at = 0; at < text.size(); at += size)
        calls.add(out, "a", http::text_delta(text.substr(at, size)));
      calls.finish(out, "a");
      auto received = json::array();
      for (const auto& event : lines_of(out)) {
        EXPECT_EQ(event["event"], "tool_call");
        EXPECT_EQ(event["id"], "a");
        EXPECT_EQ(event["index"], 0);
        received.push_back(event["tool_call"]);
      }
      EXPECT_EQ(received, expected) << length << " " << size;
    }
  }
}

TEST(JsonLinesTools, AnswersOfOneRequestAreReadEachByItself) {
  const auto op = asked(openai_tools(R"(,"n":2)"));
  CallEvents calls(op.reading);
  std::string out;
  const std::string text = "<tool_call>\n{\"name\": \"now\", \"arguments\": {}}\n</tool_call>";
  for (const char byte : text) {
    for (const std::int32_t index : {0, 1}) {
      auto delta = http::text_delta(std::string(1, byte));
      delta.index = index;
      calls.add(out, "a", delta);
    }
  }
  const auto events = lines_of(out);
  ASSERT_EQ(events.size(), 2U);
  EXPECT_EQ(events[1]["index"], 1);
  EXPECT_NE(events[0]["tool_call"]["id"], events[1]["tool_call"]["id"]);
}

}  // namespace
}  // namespace pagoda::json_lines

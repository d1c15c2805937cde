#include "io/wire/chat_fields.hpp"

#include <string>

#include <gtest/gtest.h>

namespace pagoda::wire {
namespace {

tl::expected<Json, WireError> read(const std::string& text) {
  return read_messages(Json::parse(text));
}

std::string param_of(const std::string& text) {
  const auto messages = read(text);
  return messages ? "accepted" : messages.error().param;
}

TEST(ChatFields, MessagesOfAllRolesPass) {
  const auto messages = read(R"([{"role":"system","content":"s"},{"role":"developer","content":"d"},
      {"role":"user","content":"u","name":"ann"},{"role":"assistant","content":"a"},
      {"role":"tool","content":"t","tool_call_id":"c1"}])");
  ASSERT_TRUE(messages.has_value()) << messages.error().message;
  EXPECT_EQ(messages->size(), 5U);
  EXPECT_EQ((*messages)[2]["name"], "ann");
  EXPECT_EQ((*messages)[4]["tool_call_id"], "c1");
}

TEST(ChatFields, AnAnswerOfAnSdkMayComeBackAsItWas) {
  const auto messages = read(R"([{"role":"assistant","content":"a","refusal":null,"annotations":[],"audio":null,
      "function_call":null,"tool_calls":null}])");
  ASSERT_TRUE(messages.has_value()) << messages.error().message;
  EXPECT_EQ((*messages)[0].dump(), R"({"role":"assistant","content":"a"})");
}

TEST(ChatFields, ArgumentsOfToolCallsBecomeObjects) {
  const auto messages = read(R"([{"role":"assistant","content":null,"tool_calls":[
      {"id":"c1","type":"function","function":{"name":"f","arguments":"{\"b\": 1, \"a\": [2]}"}}]}])");
  ASSERT_TRUE(messages.has_value()) << messages.error().message;
  EXPECT_TRUE((*messages)[0]["content"].is_null());
  EXPECT_EQ((*messages)[0]["tool_calls"][0]["function"]["arguments"].dump(), R"({"b":1,"a":[2]})");
}

TEST(ChatFields, WhatIsWrongIsNamedByItsPlace) {
  EXPECT_EQ(param_of("[]"), "messages");
  EXPECT_EQ(param_of("\"hello\""), "messages");
  EXPECT_EQ(param_of("[1]"), "messages[0]");
  EXPECT_EQ(param_of(R"([{"content":"x"}])"), "messages[0].role");
  EXPECT_EQ(param_of(R"([{"role":"robot","content":"x"}])"), "messages[0].role");
  EXPECT_EQ(param_of(R"([{"role":"user"}])"), "messages[0].content");
  EXPECT_EQ(param_of(R"([{"role":"user","content":null}])"), "messages[0].content");
  EXPECT_EQ(param_of(R"([{"role":"user","content":7}])"), "messages[0].content");
  EXPECT_EQ(param_of(R"([{"role":"user","content":"x"},{"role":"user","content":"y","mood":1}])"), "messages[1].mood");
  EXPECT_EQ(param_of(R"([{"role":"user","content":[{"type":"image_url","image_url":{}}]}])"),
            "messages[0].content[0].type");
  EXPECT_EQ(param_of(R"([{"role":"user","content":[{"type":"text"}]}])"), "messages[0].content[0].text");
  EXPECT_EQ(param_of(R"([{"role":"assistant","tool_calls":[{"function":{"arguments":"{}"}}]}])"),
            "messages[0].tool_calls[0].function.name");
}

TEST(ChatFields, VariablesForTheTemplateAreFew) {
  Json object = Json::parse(R"({"messages":[{"role":"user","content":"x"}]})");
  for (int i = 0; i < 300; ++i) object["chat_template_kwargs"]["k" + std::to_string(i)] = i;
  FieldReader fields(object);
  chat::ChatInput chat;
  read_chat(fields, chat);
  const auto status = fields.finish();
  ASSERT_FALSE(status.has_value());
  EXPECT_EQ(status.error().param, "chat_template_kwargs");
}

TEST(ChatFields, ContinuingAndAnsweringExcludeEachOther) {
  const auto object = Json::parse(
      R"({"messages":[{"role":"assistant","content":"x"}],"continue_final_message":true,"add_generation_prompt":true})");
  FieldReader fields(object);
  chat::ChatInput chat;
  read_chat(fields, chat);
  const auto status = fields.finish();
  ASSERT_FALSE(status.has_value());
  EXPECT_EQ(status.error().param, "continue_final_message");
}

TEST(ChatFields, AConversationAsksForAnAnswerUnlessItsLastMessageGoesOn) {
  for (const bool goes_on : {false, true}) {
    auto object = Json::parse(R"({"messages":[{"role":"user","content":"x"}]})");
    if (goes_on) object["continue_final_message"] = true;
    FieldReader fields(object);
    chat::ChatInput chat;
    read_chat(fields, chat);
    ASSERT_TRUE(fields.finish().has_value());
    EXPECT_EQ(chat.add_generation_prompt, !goes_on);
  }
}

}  // namespace
}  // namespace pagoda::wire

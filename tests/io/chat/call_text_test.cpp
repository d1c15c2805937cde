#include "io/chat/call_text.hpp"

#include <gtest/gtest.h>

#include "tests/io/chat/known_dialects.hpp"
#include "tests/io/chat/parsed_answer.hpp"

namespace pagoda::chat {
namespace {

using Json = nlohmann::ordered_json;

Json call(const std::string& name, const std::string& id, const Json& arguments) {
  return {{"id", id}, {"type", "function"}, {"function", {{"name", name}, {"arguments", arguments}}}};
}

TEST(CallTexts, AreReadAsTheCallsThatTheyWereMadeOf) {
  const Json first{{"city", "Paris \"2\"\n\xC3\xA9"}, {"days", 3}, {"exact", true}, {"more", {{"a", {1, nullptr}}}}};
  const Json second{{"city", "a, b"}};
  for (const auto& [name, dialect] : testing::known_dialects()) {
    SCOPED_TRACE(name);
    const ToolCallForm& form = *dialect.calls;
    Json calls = Json::array({call("weather", "abcdefghi", first)});
    if (form.takes_several) calls.push_back(call("time", "ihgfedcba", second));
    AnswerParser::Options options{.takes_calls = true};
    options.is_text = [](std::string_view, std::string_view key) { return key == "city"; };
    const auto parts = testing::parse_whole(AnswerParser(dialect, options), call_text(form, calls));
    ASSERT_EQ(parts.size(), calls.size()) << testing::line_of(parts);
    EXPECT_EQ(parts[0].text, "weather");
    EXPECT_TRUE(parts[0].has_ended);
    EXPECT_EQ(Json::parse(parts[0].arguments), first) << parts[0].arguments;
    if (parts.size() > 1) {
      EXPECT_EQ(parts[1].text, "time");
      EXPECT_EQ(Json::parse(parts[1].arguments), second);
    }
  }
}

TEST(CallTexts, AreWhatModelsWrite) {
  const Json calls = Json::array({call("f", "a", {{"a", 1}, {"b", {true, "x"}}}), call("g", "b", Json::object())});
  EXPECT_EQ(call_text(*testing::phi_4_mini().calls, calls),
            R"(<|tool_call|>[{"name": "f", "arguments": {"a": 1, "b": [true, "x"]}}, {"name": "g", "arguments": {}}])"
            "<|/tool_call|>");
  EXPECT_EQ(call_text(*testing::lfm2().calls, calls),
            R"(<|tool_call_start|>[f(a=1, b=[True, "x"]), g()]<|tool_call_end|>)");
  EXPECT_EQ(
      call_text(*testing::kimi_k2().calls, Json::array({calls[1]})),
      "<|tool_calls_section_begin|><|tool_call_begin|>functions.g:0<|tool_call_argument_begin|>{}<|tool_call_end|>"
      "<|tool_calls_section_end|>");
}

}  // namespace
}  // namespace pagoda::chat

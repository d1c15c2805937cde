#include "io/wire/field_reader.hpp"

#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "io/wire/chat_fields.hpp"
#include "io/wire/tool_fields.hpp"

namespace pagoda::wire {
namespace {

using testing::ElementsAre;

/// Reads the fields temperature and top_p of an object "options.", and says what is wrong.
std::string problem_of(const Json& object, FieldReader::Nulls nulls = FieldReader::Nulls::absent) {
  FieldReader fields(object, nulls, "options.");
  double number = 0;
  fields.read("temperature", number);
  fields.read("top_p", number);
  const auto status = fields.finish();
  return status ? "" : status.error().message + " / " + status.error().param;
}

TEST(FieldReader, WithoutAScopeAnUnknownFieldIsRefused) {
  EXPECT_EQ(problem_of({{"colour", 1}}), "unknown field \"options.colour\" / options.colour");
  EXPECT_EQ(problem_of({{"colour", nullptr}}), "unknown field \"options.colour\" / options.colour");
  EXPECT_EQ(problem_of({{"temprature", 1}}),
            "unknown field \"options.temprature\"; did you mean \"options.temperature\"? / options.temprature");
}

TEST(FieldReader, AScopeMayIgnoreUnknownFieldsByName) {
  IgnoredFields ignored(UnknownFields::ignored);
  {
    const IgnoredFields::Scope scope(ignored);
    EXPECT_EQ(problem_of({{"colour", 1}, {"shape", {{"temprature", 1}}}, {"temperature", 1}}), "");
    EXPECT_EQ(problem_of({{"colour", 1}}), "");
  }
  EXPECT_THAT(ignored.names(), ElementsAre("options.colour", "options.shape"));
  EXPECT_EQ(ignored.header(), "options.colour, options.shape");
  EXPECT_EQ(IgnoredFields::current(), nullptr);
}

TEST(FieldReader, AMisspellingIsRefusedWhateverTheScopeSays) {
  for (const auto rule : {UnknownFields::ignored, UnknownFields::refused}) {
    IgnoredFields ignored(rule);
    const IgnoredFields::Scope scope(ignored);
    EXPECT_EQ(problem_of({{"temprature", 1}}),
              "unknown field \"options.temprature\"; did you mean \"options.temperature\"? / options.temprature");
    EXPECT_EQ(problem_of({{"temperature", 0.5}, {"topP", 1}}),
              "unknown field \"options.topP\"; did you mean \"options.top_p\"? / options.topP");
    EXPECT_THAT(ignored.names(), ElementsAre()) << "a refused field is not ignored";
  }
}

TEST(FieldReader, InAScopeThatRefusesUnknownFieldsNullIsAbsent) {
  IgnoredFields ignored(UnknownFields::refused);
  const IgnoredFields::Scope scope(ignored);
  EXPECT_EQ(problem_of({{"colour", 1}}), "unknown field \"options.colour\" / options.colour");
  EXPECT_EQ(problem_of({{"colour", nullptr}, {"temprature", nullptr}, {"top_p", nullptr}}), "");
  EXPECT_THAT(ignored.names(), ElementsAre());
}

TEST(FieldReader, AKnownFieldWithoutEffectIsTreatedAsUnknown) {
  const auto read = [](const Json& object) {
    FieldReader fields(object, FieldReader::Nulls::absent);
    fields.ignore("mode", "is for another server");
    const auto status = fields.finish();
    return status ? "" : status.error().message;
  };
  EXPECT_EQ(read({{"mode", 1}}), "mode is for another server");
  EXPECT_EQ(read({{"mode", nullptr}}), "");
  IgnoredFields ignored(UnknownFields::ignored);
  const IgnoredFields::Scope scope(ignored);
  EXPECT_EQ(read({{"mode", 1}, {"modes", 2}}), "") << "no misspelling of a field that has no effect";
  EXPECT_THAT(ignored.names(), ElementsAre("mode", "modes"));
}

TEST(FieldReader, MembersOfMessagesPartsCallsAndToolsFollowTheScope) {
  const Json body = Json::parse(R"({"messages": [
      {"role": "user", "a": 1, "content": [{"type": "text", "text": "x", "b": 1}]},
      {"role": "user", "a": 2, "c": null, "content": "x"},
      {"role": "assistant", "tool_calls": [{"id": "1", "d": 1, "function": {"name": "f", "arguments": "{}", "e": 1}}]}],
    "tools": [{"type": "function", "strict": true, "function": {"name": "f", "g": 1}}]})");
  const auto read = [](const Json& given) {
    FieldReader fields(given, FieldReader::Nulls::absent);
    chat::ChatInput chat;
    read_chat(fields, chat);
    read_tools(fields, chat);
    const auto status = fields.finish();
    return status ? "" : status.error().param;
  };
  EXPECT_EQ(read(body), "messages[0].a");
  IgnoredFields ignored(UnknownFields::ignored);
  const IgnoredFields::Scope scope(ignored);
  EXPECT_EQ(read(body), "");
  EXPECT_THAT(ignored.names(),
              ElementsAre("messages[].a", "messages[].content[].b", "messages[].tool_calls[].d",
                          "messages[].tool_calls[].function.e", "tools[].function.g", "tools[].strict"));
  EXPECT_EQ(read(Json::parse(R"({"messages": [{"role": "user", "content": "x", "contnet": "y"}]})")),
            "messages[0].contnet");
  EXPECT_EQ(read(Json::parse(R"({"messages": [{"role": "user", "content": "x", "images": ["y"]}]})")),
            "messages[0].images")
      << "what a message says is not left out";
}

TEST(IgnoredFields, TheHeaderIsPrintableAndBounded) {
  IgnoredFields ignored(UnknownFields::ignored);
  EXPECT_EQ(IgnoredFields::listed_name("a[12].", "b\r\nc,\xc3\xa9 d"), "a[].b??c????d");
  EXPECT_EQ(IgnoredFields::listed_name({}, std::string(500, 'x')), std::string(80, 'x'));
  for (int i = 0; i < 1000; ++i) ignored.add("field_number_" + std::to_string(i));
  EXPECT_EQ(ignored.names().size(), IgnoredFields::kMaxNames);
  EXPECT_LE(ignored.header().size(), IgnoredFields::kMaxHeaderBytes);
  EXPECT_TRUE(ignored.header().ends_with(", ..."));
}

}  // namespace
}  // namespace pagoda::wire

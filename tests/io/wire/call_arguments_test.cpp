#include "io/wire/call_arguments.hpp"

#include <string>

#include <gtest/gtest.h>

#include "io/wire/exact_json.hpp"

namespace pagoda::wire {
namespace {

std::string read_text(const std::string& arguments) {
  return json_text(read_call_arguments(arguments));
}

TEST(CallArguments, AreObjectsInTheOrderAndWithTheDigitsOfTheText) {
  EXPECT_EQ(read_text(R"({"b": 18446744073709551616, "a": [1.5, null]})"),
            R"({"b":18446744073709551616,"a":[1.5,null]})");
  EXPECT_EQ(json_text(read_call_arguments(Json{{"b", 1}})), R"({"b":1})");
}

TEST(CallArguments, ThatAreNothingAreNone) {
  for (const auto* nothing : {"", " \n", "null", "{}"}) EXPECT_EQ(read_text(nothing), "{}") << nothing;
  EXPECT_EQ(read_call_arguments(nullptr), Json::object());
}

TEST(CallArguments, ThatWereCutOffAreClosed) {
  EXPECT_EQ(read_text(R"({"path": "src/ma)"), R"({"path":"src/ma"})");
  EXPECT_EQ(read_text("{"), "{}");
}

TEST(CallArguments, ThatAreNoObjectAreTheOnlyMember) {
  EXPECT_EQ(read_text("[1, 2]"), R"({"arguments":[1,2]})");
  EXPECT_EQ(read_text("[1, 2"), R"({"arguments":"[1, 2"})");
  EXPECT_EQ(read_text("just words"), R"({"arguments":"just words"})");
  EXPECT_EQ(read_text("\"text\""), R"({"arguments":"text"})");
  EXPECT_EQ(read_text("{'city': 'Paris'}"), R"({"arguments":"{'city': 'Paris'}"})");
  EXPECT_EQ(json_text(read_call_arguments(7)), R"({"arguments":7})");
}

TEST(CallArguments, ThatNestTooDeeplyStayText) {
  const auto read = read_call_arguments(std::string(100, '[') + std::string(100, ']'));
  EXPECT_TRUE(read.at("arguments").is_string());
  EXPECT_EQ(json_text(read_call_arguments(R"({"a":1,"a":2})")), R"({"a":2})");
}

}  // namespace
}  // namespace pagoda::wire

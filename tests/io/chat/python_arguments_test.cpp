#include "io/chat/python_arguments.hpp"

#include <string>
#include <string_view>

#include <gtest/gtest.h>

namespace pagoda::chat {
namespace {

/// The JSON, and behind a bar what is not of the arguments; "..." there where they are not over.
std::string converted(std::string_view text) {
  PythonArguments whole;
  std::string json;
  const ReadResult result = whole.consume(text, json);

  PythonArguments cut;
  std::string cut_json;
  std::string held;
  ReadResult cut_result;
  for (std::size_t at = 0; at < text.size() && cut_result.state == ReadResult::State::more; ++at) {
    held += text[at];
    cut_result = cut.consume(held, cut_json);
    held.erase(0, cut_result.bytes);
  }
  EXPECT_EQ(cut_json, json);
  EXPECT_EQ(cut_result.state, result.state);
  if (result.state == ReadResult::State::more) return json + "|...";
  return json + "|" + std::string(text.substr(result.bytes));
}

TEST(PythonArguments, KeywordsBecomeKeys) {
  EXPECT_EQ(converted(")"), "{}|)");
  EXPECT_EQ(converted(" \n)"), "{}|)");
  EXPECT_EQ(converted("a=1)"), "{\"a\": 1}|)");
  EXPECT_EQ(converted("a = 1 , b=2,)"), "{\"a\": 1, \"b\": 2}|)");
  EXPECT_EQ(converted("\xC3\xBC=1)"), "{\"\xC3\xBC\": 1}|)");
}

TEST(PythonArguments, WordsBecomeThoseOfJson) {
  EXPECT_EQ(converted("a=True,b=False,c=None)"), "{\"a\": true, \"b\": false, \"c\": null}|)");
  EXPECT_EQ(converted("a=true,b=false,c=null)"), "{\"a\": true, \"b\": false, \"c\": null}|)");
}

TEST(PythonArguments, NumbersBecomeThoseOfJson) {
  EXPECT_EQ(converted("a=-3,b=+3,c=0)"), "{\"a\": -3, \"b\": 3, \"c\": 0}|)");
  EXPECT_EQ(converted("a=1.5,b=.5,c=5.,d=-.5)"), "{\"a\": 1.5, \"b\": 0.5, \"c\": 5.0, \"d\": -0.5}|)");
  EXPECT_EQ(converted("a=1e5,b=1.E-5,c=2e+3)"), "{\"a\": 1e5, \"b\": 1.0e-5, \"c\": 2e+3}|)");
  EXPECT_EQ(converted("a=1_000)"), "{\"a\": 1000}|)");
}

TEST(PythonArguments, StringsBecomeThoseOfJson) {
  EXPECT_EQ(converted(R"(a="x'y",b='x"y'))"), R"({"a": "x'y", "b": "x\"y"}|))");
  EXPECT_EQ(converted(R"(a='\n\t\\\'\"\r'))"), R"({"a": "\n\t\\'\"\r"}|))");
  EXPECT_EQ(converted(R"(a='\x41\u00e9\U0001F600'))"), R"({"a": "\u0041\u00e9\ud83d\ude00"}|))");
  EXPECT_EQ(converted(R"(a='\d\x4g\u12\U00110000'))"), R"({"a": "\\d\\x4g\\u12\\U00110000"}|))");
  EXPECT_EQ(converted("a='x\ny\\\nz\x01')"), "{\"a\": \"x\\nyz\\u0001\"}|)");
}

TEST(PythonArguments, ListsTuplesAndDictionariesNest) {
  EXPECT_EQ(converted("a=[],b=(),c={})"), "{\"a\": [], \"b\": [], \"c\": {}}|)");
  EXPECT_EQ(converted("a=[1, (2,), {'b': [3], 'c': None,},])"), "{\"a\": [1, [2], {\"b\": [3], \"c\": null}]}|)");
  EXPECT_EQ(converted("a={1: 2, True: 3, -.5: 4})"), "{\"a\": {\"1\": 2, \"true\": 3, \"-0.5\": 4}}|)");
}

TEST(PythonArguments, TheyEndWhereNoKeyComes) {
  EXPECT_EQ(converted("a=1 b=2)"), "{\"a\": 1}|b=2)");
  EXPECT_EQ(converted("a=1)]"), "{\"a\": 1}|)]");
}

TEST(PythonArguments, WhatIsNoLiteralIsAMismatch) {
  EXPECT_EQ(converted("a=two)"), "{\"a\": |two)");
  EXPECT_EQ(converted("a=[1 2])"), "{\"a\": [1|2])");
  EXPECT_EQ(converted("a=[1)]"), "{\"a\": [1|)]");
  EXPECT_EQ(converted("a={[1]: 2})"), "{\"a\": {|[1]: 2})");
  EXPECT_EQ(converted("a={1, 2})"), "{\"a\": {\"1\"|, 2})");
  EXPECT_EQ(converted("a={1:})"), "{\"a\": {\"1\": |})");
  EXPECT_EQ(converted("a=--1)"), "{\"a\": -|-1)");
  EXPECT_EQ(converted("two)"), "|two)");
  EXPECT_EQ(converted(std::string(257, 'k') + "=1)"), "|" + std::string(257, 'k') + "=1)");
}

TEST(PythonArguments, WhatIsCutOffIsKept) {
  EXPECT_EQ(converted("a=[1, 'x"), "{\"a\": [1, \"x|...");
  EXPECT_EQ(converted("a=12"), "{\"a\": 12|...");
  EXPECT_EQ(converted("a=1, b"), "{\"a\": 1|...");
}

}  // namespace
}  // namespace pagoda::chat

// Tests structural tags: free text, with parts that follow grammars.

#include <gtest/gtest.h>

#include "engine/grammar/structural_tag_rules.hpp"
#include "tests/engine/grammar/grammar_text.hpp"

namespace pagoda::grammar {
namespace {

StructuredOutput structural_tag(const std::string& format) {
  return {GrammarKind::structural_tag, R"({"type":"structural_tag","format":)" + format + "}", {}};
}

class StructuralTags : public testing::Test {
 protected:
  static void expect(const std::string& format, const std::vector<std::string>& taken,
                     const std::vector<std::string>& refused) {
    const auto grammar = test::word_compiler()->compile(structural_tag(format));
    ASSERT_TRUE(grammar) << format << ": " << grammar.error().message;
    for (const auto& text : taken) EXPECT_TRUE(test::takes(*grammar, text)) << format << " on " << text;
    for (const auto& text : refused) EXPECT_FALSE(test::takes(*grammar, text)) << format << " on " << text;
  }
};

TEST_F(StructuralTags, AreMadeOfParts) {
  expect(R"({"type":"const_string","value":"yes"})", {"yes"}, {"", "no", "yes!"});
  expect(R"({"type":"json_schema","json_schema":{"enum":[true,null,"a"]}})", {"true", "null", "\"a\""}, {"True", "a"});
  expect(R"({"type":"json_schema","style":"python","json_schema":{"enum":[true,null,{"a":[false]}]}})",
         {"True", "None", "{\"a\": [False]}"}, {"true", "null"});
  expect(R"({"type":"regex","pattern":"a+b"})", {"ab", "aaab"}, {"b", "a"});
  expect(R"_({"type":"grammar","grammar":"root ::= \"(\" root? \")\""})_", {"()", "(())"}, {"(", "())"});
  expect(R"({"type":"sequence","elements":[{"type":"const_string","value":"a"},{"type":"regex","pattern":"[0-9]"}]})",
         {"a1"}, {"a", "1", "a12"});
  expect(R"({"type":"or","elements":[{"type":"const_string","value":"a"},{"type":"regex","pattern":"[0-9]"}]})",
         {"a", "1"}, {"a1", ""});
  expect(R"({"type":"optional","content":{"type":"const_string","value":"ab"}})", {"", "ab"}, {"a", "abab"});
  expect(R"({"type":"star","content":{"type":"const_string","value":"ab"}})", {"", "ab", "abab"}, {"aba"});
  expect(R"({"type":"plus","content":{"type":"const_string","value":"ab"}})", {"ab", "abab"}, {"", "aba"});
  expect(R"({"type":"repeat","min":1,"max":2,"content":{"type":"const_string","value":"ab"}})", {"ab", "abab"},
         {"", "ababab"});
}

TEST_F(StructuralTags, FreeTextIsAnythingButWhatEndsIt) {
  expect(R"({"type":"any_text"})", {"", "a<b>\n\"{", "\xC3\xA9"}, {});
  expect(R"({"type":"any_text","excludes":["<b>","no"]})", {"", "a<bn", "n", "<<b"},
         {"<b>", "a<b>c", "yes no", "<<b>"});
  expect(R"({"type":"tag","begin":"<t>","content":{"type":"any_text"},"end":"</t>"})",
         {"<t></t>", "<t>x</t>", "<t><</t>", "<t></</t>"}, {"<t>", "<t>a", "<t></t>b", "<t></t></t>"});
}

TEST_F(StructuralTags, TagsMayEndInSeveralWays) {
  expect(R"_({"type":"tag","begin":"(","content":{"type":"any_text"},"end":[")","]"]})_", {"(a)", "(a]"},
         {"(a", "(a)]", "(a)b)"});
  expect(R"({"type":"tag","begin":"","content":{"type":"any_text"},"end":""})", {"", "abc"}, {});
}

constexpr const char* kTools = R"({"type":"triggered_tags","triggers":["<tool>"],"tags":[
  {"begin":"<tool>f(","content":{"type":"json_schema","json_schema":{"type":"integer"}},"end":")</tool>"},
  {"begin":"<tool>g(","content":{"type":"json_schema","json_schema":{"type":"boolean"}},"end":")</tool>"}])";

TEST_F(StructuralTags, TextIsFreeUntilATrigger) {
  expect(
      std::string(kTools) + "}",
      {"", "Hello <tool", "<tool>f(12)</tool>", "a <tool>g(true)</tool> and <tool>f(-1)</tool>b", "<<tool>f(1)</tool>"},
      {"<tool>", "<tool>f(true)</tool>", "<tool>h(1)</tool>", "a<tool>f(1)</tool", "<tool>f(1)</tool><tool>"});
}

TEST_F(StructuralTags, MayAskForATagAndForNothingBehindIt) {
  expect(std::string(kTools) + R"(,"at_least_one":true})",
         {"<tool>f(1)</tool>", "<tool>f(1)</tool> <tool>g(false)</tool>x"}, {"", "a<tool>f(1)</tool>", "<tool>"});
  expect(std::string(kTools) + R"(,"stop_after_first":true})", {"", "a", "a<tool>f(1)</tool>"},
         {"<tool>f(1)</tool>b", "<tool>f(1)</tool><tool>f(1)</tool>"});
  expect(std::string(kTools) + R"(,"stop_after_first":true,"at_least_one":true})", {"<tool>f(1)</tool>"},
         {"", "a<tool>f(1)</tool>", "<tool>f(1)</tool>b"});
  expect(std::string(kTools) + R"(,"excludes":["no"]})", {"n", "yes<tool>f(1)</tool>n"}, {"no", "<tool>f(1)</tool>no"});
}

TEST_F(StructuralTags, TagsMayBeSeparated) {
  const std::string tags = R"({"type":"tags_with_separator","separator":",","tags":[
    {"type":"tag","begin":"a","content":{"type":"regex","pattern":"[0-9]"},"end":"z"}])";
  expect(tags + "}", {"", "a1z", "a1z,a2z,a3z"}, {"a1z,", ",a1z", "a1za1z"});
  expect(tags + R"(,"at_least_one":true})", {"a1z", "a1z,a2z"}, {""});
  expect(tags + R"(,"stop_after_first":true})", {"", "a1z"}, {"a1z,a2z"});
}

TEST_F(StructuralTags, PartsMayComeInOrder) {
  const std::string parts = R"({"type":"in_order","separator":",","elements":[
    {"content":{"type":"const_string","value":"a"},"required":false},
    {"content":{"type":"const_string","value":"b"},"required":true},
    {"content":{"type":"const_string","value":"c"}}]})";
  expect(parts, {"b", "a,b", "b,c", "a,b,c"}, {"", "a", "a,c", "b,a", "ab", "b,", ",b", "c"});
}

TEST_F(StructuralTags, HaveAnOlderFormToo) {
  const StructuredOutput constraint{
      GrammarKind::structural_tag,
      R"({"structures":[{"begin":"<f>","schema":{"type":"integer"},"end":"</f>"}],"triggers":["<f"]})",
      {}};
  const auto grammar = test::word_compiler()->compile(constraint).value();
  EXPECT_TRUE(test::takes(grammar, "a <f>1</f> b"));
  EXPECT_FALSE(test::takes(grammar, "a <f"));
  EXPECT_FALSE(test::takes(grammar, "a <f>x</f>"));
}

TEST_F(StructuralTags, ATriggerThatNothingCanFollowIsNeverWritten) {
  expect(R"({"type":"triggered_tags","triggers":["<a>","<b>"],"tags":[
    {"begin":"<a>","content":{"type":"grammar","grammar":"root ::= root \"x\""},"end":""},
    {"begin":"<b>","content":{"type":"const_string","value":"y"},"end":""}]})",
         {"", "<b>y", "<a"}, {"<a>", "x<a>", "<a>x"});
}

TEST_F(StructuralTags, RandomTextsKeepToTheirTags) {
  const auto grammar = test::word_compiler()->compile(structural_tag(std::string(kTools) + R"(,"at_least_one":true})"));
  ASSERT_TRUE(grammar);
  std::mt19937 random(5);
  for (int i = 0; i < 60; ++i) {
    const auto text = test::random_text(*grammar, random, 600);
    if (!text) continue;
    EXPECT_TRUE(test::takes(*grammar, *text)) << *text;
    for (std::size_t at = text->find("<tool>"); at != std::string::npos; at = text->find("<tool>", at + 1)) {
      const std::string rest = text->substr(at + 6);
      EXPECT_TRUE(rest.starts_with("f(") || rest.starts_with("g(")) << *text;
      EXPECT_NE(rest.find(")</tool>"), std::string::npos) << *text;
    }
  }
}

TEST(StructuralTagErrors, NameThePart) {
  const auto refusal = [](const std::string& format) { return test::refusal(structural_tag(format)); };
  EXPECT_EQ(refusal(R"({"type":"token"})"), "the structural tag at /format/type: the type token is not supported");
  EXPECT_EQ(refusal(R"({"type":"const_string"})"), "the structural tag at /format/value: it is required");
  EXPECT_EQ(refusal(R"({"type":"const_string","value":1})"), "the structural tag at /format/value: it is not a string");
  EXPECT_EQ(refusal(R"({"type":"const_string","value":"a","b":1})"),
            "the structural tag at /format/b: the member is not supported");
  EXPECT_EQ(refusal("3"), "the structural tag at /format: it is not an object");
  EXPECT_EQ(refusal(R"({"type":"sequence","elements":[]})"),
            "the structural tag at /format/elements: it is not a list, or it is empty");
  EXPECT_EQ(refusal(R"_({"type":"or","elements":[{"type":"any_text"},{"type":"regex","pattern":"("}]})_").substr(0, 50),
            "the structural tag at /format/elements/1/pattern: ");
  EXPECT_EQ(refusal(R"({"type":"triggered_tags","triggers":["<b"],"tags":[
              {"begin":"<a>","content":{"type":"any_text"},"end":"<"}]})"),
            "the structural tag at /format/tags/0: it begins with none of the triggers");
  EXPECT_EQ(refusal(R"({"type":"triggered_tags","triggers":["<a","<ab"],"tags":[
              {"begin":"<a>","content":{"type":"any_text"},"end":"<"}]})"),
            "the structural tag at /format/triggers: a trigger begins with another trigger or with an excluded text");
  EXPECT_EQ(refusal(R"({"type":"repeat","min":2,"max":1,"content":{"type":"any_text"}})"),
            "the structural tag at /format/max: it is less than min");
  EXPECT_NE(refusal(R"({"type":"json_schema","json_schema":{"$dynamicRef":"#a"}})").find("/format/json_schema: "),
            std::string::npos);
  const auto labelled =
      refusal(R"({"type":"json_schema","label":"tool f","json_schema":{"properties":{"a":{"$dynamicRef":"#a"}}}})");
  EXPECT_EQ(labelled.find("tool f: "), 0U) << labelled;
  EXPECT_NE(labelled.find("/properties/a"), std::string::npos) << labelled;
  EXPECT_EQ(refusal(R"({"type":"json_schema","label":3,"json_schema":{}})"),
            "the structural tag at /format/label: it is not a string");
  EXPECT_EQ(test::refusal({GrammarKind::structural_tag, "{", {}}), "the structural tag: it is not JSON");
  EXPECT_NE(test::refusal({GrammarKind::structural_tag, "[]", {}}), "");
}

}  // namespace
}  // namespace pagoda::grammar

#include "engine/text/regex.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/text/regex_syntax.hpp"

namespace pagoda::text {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::vector<std::string> matches_of(std::string_view pattern, std::string_view text) {
  const Result<Regex> regex = Regex::compile(pattern);
  EXPECT_TRUE(regex) << regex.error().message;
  std::vector<Span> spans;
  const Status status = regex->find_all(text, spans);
  EXPECT_TRUE(status) << status.error().message;
  std::vector<std::string> matches;
  for (const Span& span : spans) matches.emplace_back(text.substr(span.begin, span.end - span.begin));
  return matches;
}

TEST(Regexes, ReadSpaceAndWordClassesAsUnicodeDoes) {
  EXPECT_THAT(matches_of("\\s+", "a\u3000 \u180eb\u0085"), ElementsAre("\u3000 ", "\u0085"));
  EXPECT_THAT(matches_of("[^\\s]+", "a\u180e b"), ElementsAre("a\u180e", "b"));
  EXPECT_THAT(matches_of("[\\S]", " a"), ElementsAre("a"));
  EXPECT_THAT(matches_of("\\w+", "na\u00efve e\u0301 x_1"), ElementsAre("na\u00efve", "e\u0301", "x_1"));
  EXPECT_THAT(matches_of("\\W", "a-b"), ElementsAre("-"));
}

TEST(Regexes, ReadRubysSpellings) {
  EXPECT_THAT(matches_of("\\h+", "xyz09aFg"), ElementsAre("09aF"));
  EXPECT_THAT(matches_of("\\H+", "09xy1"), ElementsAre("xy"));
  EXPECT_THAT(matches_of("\\u4e16", "\u4e16\u754c"), ElementsAre("\u4e16"));
  EXPECT_THAT(matches_of("a{,2}b", "aaab"), ElementsAre("aab"));
  EXPECT_THAT(matches_of("(?m:a.b)", "a\nb"), ElementsAre("a\nb"));
  EXPECT_THAT(matches_of("a.b", "a\nb"), ElementsAre());
  EXPECT_THAT(matches_of("^x$", "x\nx"), ElementsAre("x", "x"));
  EXPECT_THAT(matches_of("\\p{Han}+", "a\u4e16\u754c"), ElementsAre("\u4e16\u754c"));
  EXPECT_THAT(matches_of("\\p{^L}", "a1"), ElementsAre("1"));
  EXPECT_THAT(matches_of("a(?#comment)b", "ab"), ElementsAre("ab"));
  EXPECT_THAT(matches_of("a{x}", "a{x}"), ElementsAre("a{x}"));
}

TEST(Regexes, FindEmptyMatchesButNotRightBehindAnotherMatch) {
  EXPECT_THAT(matches_of("a*", "baac"), ElementsAre("", "aa", ""));
}

TEST(Regexes, RefuseWhatWouldMeanSomethingElse) {
  for (const char* pattern : {"[a[b]]", "[a&&b]", "\\p{L}{1,3}+", "[\\W]", "(?x: a)", "\\u12", "\\pL", "[]a]", "a\\"}) {
    const Result<Regex> regex = Regex::compile(pattern);
    ASSERT_FALSE(regex) << pattern;
    EXPECT_EQ(regex.error().code, ErrorCode::bad_config);
    EXPECT_THAT(regex.error().message, HasSubstr("is not supported")) << pattern;
  }
  for (const char* pattern : {"(", "a)", "\\p{Nonsense}", "*", "[z-a]", "\\C"}) {
    const Result<Regex> regex = Regex::compile(pattern);
    ASSERT_FALSE(regex) << pattern;
    EXPECT_THAT(regex.error().message, HasSubstr("the regex is invalid: "));
  }
  EXPECT_FALSE(Regex::compile("\xff"));
}

TEST(Regexes, GiveUpOnATextThatIsTooHard) {
  const Result<Regex> regex = Regex::compile("(a+)+$");
  ASSERT_TRUE(regex);
  std::vector<Span> spans;
  const Status status = regex->find_all(std::string(60, 'a') + "b", spans);
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().code, ErrorCode::invalid_request);
  EXPECT_THAT(status.error().message, HasSubstr("too hard to split"));
}

TEST(Regexes, GoOnWithTheInterpreterWhenTheCompiledCodeRunsOutOfStack) {
  const std::string text(300'000, 'a');
  EXPECT_EQ(matches_of("(?:a|b)+c|(?:a|b)+", text).size(), 1U);
}

}  // namespace
}  // namespace pagoda::text

// Tests lengths, patterns and escapes of strings, and counts of any size.

#include <ctime>
#include <random>

#include <gtest/gtest.h>

#include "engine/grammar/item_sets.hpp"
#include "engine/grammar/token_masks.hpp"
#include "tests/engine/grammar/schema_cases.hpp"

namespace pagoda::grammar {
namespace {

using nlohmann::json;

using test::SchemaCase;

/// Returns a schema of a string whose pattern is `regex`.
std::string with_pattern(const std::string& regex, const char* more = "") {
  return R"({"type":"string","pattern":)" + json(regex).dump() + more + "}";
}

std::vector<SchemaCase> string_cases() {
  return {
      {"searched_for",
       with_pattern(R"(\d+)"),
       {R"("room 12b")", R"("1")", R"("\"1\n")", "\"\xC3\xA9 7\""},
       {R"("room")", R"("")"}},
      {"not_only_white_space",
       with_pattern(R"(\S)"),
       {R"("hello world")", R"("  x ")", "\"\xE6\x97\xA5\""},
       {R"("")", R"("  ")", R"("\n\t")"}},
      {"alternatives_with_anchors", with_pattern("^a|b$"), {R"("ax")", R"("xb")", R"("a")"}, {R"("xa")", R"("bx")"}},
      {"anchors_in_groups",
       with_pattern("(^|,)x($|,)"),
       {R"("x")", R"("a,x")", R"("x,b")", R"("q,x,q")"},
       {R"("ax")", R"("xb")", R"(",ax,")"},
       1},
      {"anchors_of_every_branch", with_pattern("(?:^a$|^b)"), {R"("a")", R"("bc")"}, {R"("ac")", R"("xb")"}},
      {"email_of_zod",
       with_pattern(
           R"(^(?!\.)(?!.*\.\.)([A-Za-z0-9_'+\-\.]*)[A-Za-z0-9_+-]@([A-Za-z0-9][A-Za-z0-9\-]*\.)+[A-Za-z]{2,}$)"),
       {R"("a@b.co")", R"("first.last+x@sub.example.org")"},
       {R"(".a@b.co")", R"("a..b@c.de")", R"("a@b")", R"("a.@b.co")", R"("a@b.c")"}},
      {"decimal_of_pydantic",
       with_pattern(R"(^(?!^[-+.]*$)[+-]?0*\d*\.?\d*$)"),
       {R"("1.5")", R"("-.5")", R"("+007.")"},
       {R"("")", R"("-")", R"("+.")", R"("1.2.3")"}},
      {"decimal_of_pydantic_with_digits",
       with_pattern(R"(^(?!^[-+.]*$)[+-]?0*(?:\d{0,3}|(?=[\d.]{1,6}0*$)\d{0,3}\.\d{0,2}0*)$)"),
       {R"("123")", R"("1.25")", R"("-0012.5000")", R"("123.45")"},
       {R"("1234.5")", R"("1.257")", R"(".")"}},
      {"look_ahead_in_the_middle",
       with_pattern("^a(?=.{2}c)[a-z]+$"),
       {R"("abbc")", R"("axxcd")"},
       {R"("abc")", R"("abbb")"}},
      {"look_ahead_in_a_loop",
       with_pattern("^(?:(?!ab)[a-c])*$"),
       {R"("")", R"("ba")", R"("aacb")"},
       {R"("ab")", R"("caab")"}},
      {"look_ahead_within_look_ahead",
       with_pattern("^(?!(?=a)[a-z]*z$)[a-z]+$"),
       {R"("ay")", R"("bz")"},
       {R"("az")", R"("abcz")", R"("")"}},
      {"length_with_escapes",
       R"({"type":"string","maxLength":4})",
       {R"("\"\\\n\/")", R"("\u00e9\ud83d\ude00\u0041b")", "\"\xF0\x9F\x98\x80\xC3\xA9\\t\"", R"("")"},
       {R"("\"\"\"\"\"")", R"("\u00e9\u00e9\u00e9\u00e9\u00e9")", R"("\ud83d")", R"("\ud83d\ud83d")", R"("\x")",
        R"("abcde")", "\"a\nb\""}},
      {"least_length_with_escapes",
       R"({"type":"string","minLength":3})",
       {R"("\"\"\"")", R"("\ud83d\ude00ab")", R"("abcdefgh")"},
       {R"("\n\n")", R"("\ud83d\ude00a")", R"("ab")"}},
      {"pattern_with_escapes",
       with_pattern(R"(^[^a-z]{2,3}$)"),
       {R"("\n\u00E9")", R"("\"A\\")", R"("\ud83d\ude00/")"},
       {R"("\n")", R"("\u0061B")", R"("na")", R"("B\/")"}},
      {"pattern_and_great_length",
       with_pattern(R"(^\S+( \S+)*$)", R"(,"maxLength":10000)"),
       {R"("a b")", R"("one two three")"},
       {R"("")", R"(" a")", R"("a ")"}},
      {"pattern_that_ends_a_bounded_text",
       with_pattern("[0-9]{3}$", R"(,"minLength":5,"maxLength":6)"),
       {R"("ab123")", R"("abc123")", R"("12345")", R"("\n\n123")"},
       {R"("a123")", R"("abcd123")", R"("abc12")", R"("123ab")"}},
      {"pattern_of_even_lengths",
       with_pattern("^(ab)*$", R"(,"minLength":3,"maxLength":7)"),
       {R"("abab")", R"("ababab")"},
       {R"("ab")", R"("abababab")", R"("aba")"}},
      {"pattern_of_few_texts",
       with_pattern("^[a-c]{3}$", R"(,"maxLength":5000)"),
       {R"("abc")"},
       {R"("ab")", R"("abca")"}},
      {"class_that_is_counted",
       with_pattern("^[a-z]{2,5000}$"),
       {R"("ab")", R"("abcdefghij")"},
       {R"("a")", R"("aB")", R"("")"}},
      {"formats_that_are_not_known",
       R"({"type":"string","format":"uuid4","maxLength":3})",
       {R"("abc")", R"("")"},
       {R"("abcd")", "1"}},
      {"pattern_of_names",
       R"({"type":"object","patternProperties":{"_id":{"type":"integer"}},"additionalProperties":false})",
       {"{}", R"({"x_id":1})", R"({"_ids":2})"},
       {R"({"x":1})", R"({"x_id":"a"})"}},
      {"patterns_of_names_that_overlap",
       R"({"type":"object","patternProperties":{"a":{"type":"integer"},"b":{"minimum":3}},"additionalProperties":{"type":"null"}})",
       {R"({"xay":1})", R"({"cab":4})", R"({"c":null})"},
       {R"({"xay":"z"})", R"({"cab":2})", R"({"cab":null})", R"({"c":1})"}},
      {"great_lengths_of_names",
       R"({"type":"object","propertyNames":{"maxLength":10000,"pattern":"^[a-z]"},"properties":{"ab":{"const":1}},"additionalProperties":{"const":2}})",
       {R"({"ab":1,"cd":2})", R"({"x9":2})"},
       {R"({"ab":2})", R"({"9":2})"}},
  };
}

class SchemaStrings : public testing::TestWithParam<SchemaCase> {};
INSTANTIATE_TEST_SUITE_P(All, SchemaStrings, testing::ValuesIn(string_cases()), test::name_of);

TEST_P(SchemaStrings, AcceptWhatTheTableSays) {
  test::expect_what_the_table_says(GetParam());
}

TEST_P(SchemaStrings, GiveOnlyValidTexts) {
  test::expect_only_valid_texts(GetParam());
}

double cpu_ms() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) * 1e3 + static_cast<double>(now.tv_nsec) / 1e6;
}

TEST(SchemaCounts, OfAnySizeAreCompiledInLittleTimeAndMemory) {
  const auto compiler = test::word_compiler();
  for (const char* const schema :
       {R"({"type":"string","maxLength":524288})", R"({"type":"string","minLength":10000,"maxLength":524288})",
        R"({"type":"array","items":{"type":"integer"},"maxItems":5000})",
        R"({"type":"string","pattern":"^[a-z]+(-[a-z]+)*$","maxLength":524288})",
        R"({"type":"string","pattern":"\\S","minLength":5000})", R"({"type":"string","pattern":"^.{1,100000}$"})",
        R"({"type":"object","additionalProperties":{"type":"integer"},"maxProperties":5000})"}) {
    const double before = cpu_ms();
    const auto compiled = compiler->compile(test::schema(schema));
    [[maybe_unused]] const double ms = cpu_ms() - before;
    ASSERT_TRUE(compiled) << schema << ": " << compiled.error().message;
    EXPECT_LT((*compiled)->num_bytes(), std::size_t{4} << 20) << schema;
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
    EXPECT_LT(ms, 50) << schema;
#endif
  }
}

TEST(SchemaCounts, OfStringsAreHeldExactly) {
  constexpr int kMax = 524'288;
  const auto compiled = test::word_compiler()->compile(
      test::schema(R"({"type":"string","minLength":3000,"maxLength":)" + std::to_string(kMax) + "}"));
  ASSERT_TRUE(compiled) << compiled.error().message;
  const std::string escapes = R"(\n\ud83d\ude00)";  // two characters
  const auto text = [&](int length) {
    return "\"" + escapes + std::string(static_cast<std::size_t>(length - 2), 'a') + "\"";
  };
  EXPECT_TRUE(test::takes(*compiled, text(3000)));
  EXPECT_FALSE(test::takes(*compiled, text(2999)));
  EXPECT_TRUE(test::takes(*compiled, text(kMax)));
  EXPECT_FALSE(test::takes(*compiled, text(kMax + 1)));
}

TEST(SchemaCounts, OfItemsAreHeldExactly) {
  const auto compiled = test::word_compiler()->compile(
      test::schema(R"({"type":"array","items":{"type":"integer"},"minItems":1200,"maxItems":5000})"));
  ASSERT_TRUE(compiled) << compiled.error().message;
  const auto text = [](int num) {
    std::string all = "[7";
    for (int i = 1; i < num; ++i) all += ",7";
    return all + "]";
  };
  EXPECT_TRUE(test::takes(*compiled, text(1200)));
  EXPECT_FALSE(test::takes(*compiled, text(1199)));
  EXPECT_TRUE(test::takes(*compiled, text(5000)));
  EXPECT_FALSE(test::takes(*compiled, text(5001)));
}

TEST(SchemaCounts, BelowAPatternAreHeldExactly) {
  const auto compiled = test::word_compiler()->compile(
      test::schema(R"({"type":"string","pattern":"^(a|b)*c$","minLength":200,"maxLength":900})"));
  ASSERT_TRUE(compiled) << compiled.error().message;
  const auto text = [](std::size_t length) { return "\"" + std::string(length - 1, 'b') + "c\""; };
  EXPECT_TRUE(test::takes(*compiled, text(200)));
  EXPECT_FALSE(test::takes(*compiled, text(199)));
  EXPECT_TRUE(test::takes(*compiled, text(900)));
  EXPECT_FALSE(test::takes(*compiled, text(901)));
  const auto refusal =
      test::refusal(test::schema(R"({"type":"string","pattern":"^(a|b)*c$","minLength":2000,"maxLength":9000})"));
  EXPECT_NE(refusal.find("/maxLength"), std::string::npos) << refusal;
}

/// Checks that the work of a mask does not grow with a bound, nor with the length of the text.
TEST(SchemaCounts, AddNothingToTheWorkOfMasks) {
  for (const char* const begin :
       {R"({"type":"string","maxLength":)", R"({"type":"string","minLength":400000,"maxLength":)",
        R"({"type":"string","pattern":"^[^x]*$","maxLength":)",
        R"({"type":"array","items":{"type":"string"},"maxItems":)"}) {
    const Automaton automaton = test::automaton_of(test::schema(begin + std::string("524288}")));
    std::vector<std::string> tokens;
    for (TokenId id = 0; id < static_cast<TokenId>(test::word_tokenizer()->vocab_size()); ++id) {
      tokens.push_back(test::word_tokenizer()->token_bytes(id).value_or(""));
    }
    const Vocabulary vocabulary(tokens, {test::kWordEnd});
    ItemSets sets(automaton);
    TokenMasks masks(sets, vocabulary);
    const bool is_array = std::string_view(begin).find("array") != std::string_view::npos;
    SetId set = sets.start();
    const auto take = [&](std::string_view text) {
      for (const char c : text) set = sets.next(set, static_cast<std::uint8_t>(c));
    };
    take(is_array ? "[\"a" : "\"a");
    std::uint64_t most = 0;
    for (int i = 0; i < 2000; ++i) {
      take(is_array ? "\",\"a" : "ab");
      ASSERT_NE(set, ItemSets::kNothing);
      const std::uint64_t before = sets.work();
      ASSERT_FALSE(masks.mask(set, kMaxMaskWork).empty());
      if (i > 1) most = std::max(most, sets.work() - before);
    }
    EXPECT_LT(most, 20U) << begin;
  }
}

/// Checks that a text that can be at more and more places of a count stays cheap too.
TEST(SchemaCounts, ThatOverlapAreOneWhereFewerHaveCome) {
  const Automaton automaton = test::automaton_of(test::regex("[a-c]*a[a-c]{0,5000}d"));
  ItemSets sets(automaton);
  SetId set = sets.start();
  for (int i = 0; i < 3000; ++i) set = sets.next(set, "aab"[i % 3]);
  ASSERT_NE(set, ItemSets::kNothing);
  EXPECT_LT(sets.items(set).size(), 8U);
}

}  // namespace
}  // namespace pagoda::grammar

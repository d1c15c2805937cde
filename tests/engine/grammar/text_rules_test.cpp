// Tests regexes, choices and grammars in EBNF.

#include <regex>

#include <gtest/gtest.h>

#include "engine/grammar/ebnf_rules.hpp"
#include "engine/grammar/regex_rules.hpp"
#include "tests/engine/grammar/grammar_text.hpp"

namespace pagoda::grammar {
namespace {

class TextRules : public testing::Test {
 protected:
  static SharedGrammar compile(const StructuredOutput& constraint) {
    const auto compiled = test::word_compiler()->compile(constraint);
    EXPECT_TRUE(compiled) << compiled.error().message;
    return compiled.value_or(nullptr);
  }
};

TEST_F(TextRules, RegexesAcceptWhatStdRegexMatches) {
  const std::vector<std::string> regexes{
      "a|b",   "(ab)*",     "a{2,4}", "[^a-c]b?", "\\d+\\.\\d{2}", "^x$",    "(a|b)*abb", "[\\w-]+", "a(b(c|d)+)?e",
      "\\x41", "(?:ab|a)b", ".a.",    "[a\\]]+",  "\\s\\S\\w?",    "(a+)+b", "",          "a??b",    "\\u0041b"};
  const std::vector<std::string> texts{
      "",    "a",  "b", "ab",  "abab", "aa",  "aaaa", "aaaaa", "1.25", "12.3", "x",  "xx", "abb", "babb", "a-b", "abce",
      "abe", "ae", "A", "abb", "bab",  "]a]", " ab",  "\tx",   "aab",  "d",    "cb", "db", "\n",  "a\na", "AB",  "Ab"};
  for (const std::string& regex : regexes) {
    const auto grammar = compile(test::regex(regex));
    ASSERT_NE(grammar, nullptr) << regex;
    const std::regex oracle(regex, std::regex::ECMAScript);
    for (const std::string& text : texts) {
      EXPECT_EQ(test::takes(grammar, text), std::regex_match(text, oracle)) << regex << " on " << text;
    }
    std::mt19937 random(2);
    for (int i = 0; i < 40; ++i) {
      const auto text = test::random_text(grammar, random, 200);
      if (!text || std::any_of(text->begin(), text->end(), [](char c) { return static_cast<unsigned char>(c) > 127; }))
        continue;  // std::regex works on bytes only
      EXPECT_TRUE(std::regex_match(*text, oracle)) << regex << " on " << *text;
    }
  }
}

TEST_F(TextRules, RegexesTakeWholeCharacters) {
  const auto grammar = compile(test::regex("."));
  EXPECT_TRUE(test::takes(grammar, "\xC3\xA9"));
  EXPECT_TRUE(test::takes(grammar, "\xF0\x9F\x98\x80"));
  EXPECT_FALSE(test::takes(grammar, "\xC3"));
  EXPECT_FALSE(test::takes(grammar, "\xA9"));
  EXPECT_FALSE(test::takes(compile(test::regex("[^\xC3\xA9]")), "\xC3\xA9"));
}

TEST_F(TextRules, WhatIsNoWhiteSpaceIsNoneToAnyReader) {
  const std::vector<std::string> spaces{" ",
                                        "\t",
                                        "\xC2\x85",
                                        "\xC2\xA0",
                                        "\xE1\x9A\x80",
                                        "\xE2\x80\x80",
                                        "\xE2\x80\x8A",
                                        "\xE2\x80\xA8",
                                        "\xE2\x80\xA9",
                                        "\xE2\x80\xAF",
                                        "\xE2\x81\x9F",
                                        "\xE3\x80\x80",
                                        "\xEF\xBB\xBF"};
  for (const char* regex : {"\\S", "[^\\s]", "[\\Sx]", "[^\\sx]"}) {
    const auto grammar = compile(test::regex(regex));
    EXPECT_TRUE(test::takes(grammar, "\xC3\xA9")) << regex;
    for (const std::string& space : spaces) EXPECT_FALSE(test::takes(grammar, space)) << regex << " on " << space;
  }
  for (const char* regex : {"\\s", "[^\\S]"}) {
    EXPECT_TRUE(test::takes(compile(test::regex(regex)), "\n"));
    EXPECT_FALSE(test::takes(compile(test::regex(regex)), "a"));
    EXPECT_FALSE(test::takes(compile(test::regex(regex)), "\xC2\x85"));
  }
}

TEST_F(TextRules, RegexesThatAreNotSupportedAreRefusedByWhatTheyHave) {
  for (const char* regex : {"a(?=b)", "(?<=a)b", "(?<!a)b", "(a)\\1", "\\bfoo", "\\p{L}", "a**", "(", ")", "[z-a]",
                            "[a", "a{3,1}", "a{9999999999}", "(?m)a", "(?x:a)", "^*a", "(?=a)+a", "(?=a", "\\"}) {
    EXPECT_NE(test::refusal(test::regex(regex)), "") << regex;
  }
  EXPECT_NE(test::refusal(test::regex("ab(?<=c)")).find("at byte 3"), std::string::npos)
      << test::refusal(test::regex("ab(?<=c)"));
}

TEST_F(TextRules, RegexesThatLookAheadAcceptWhatStdRegexMatches) {
  const std::vector<std::string> regexes{"a(?!b)[a-c]",     "(?=ab)[a-c]{2,3}", "(?!a$)[ab]+", "(a(?=b)|b)+",
                                         "(?:(?!aa)[ab])*", "(?=(?!b)a)ab?",    "a(?=$)",      "(^a|b)c?",
                                         "(?!^a)[ab]*",     "[ab]*(?![ab])"};
  std::vector<std::string> texts{""};
  for (std::size_t i = 0; i < texts.size() && texts[i].size() < 4; ++i) {
    for (const char c : {'a', 'b', 'c'}) texts.push_back(texts[i] + c);
  }
  for (const std::string& regex : regexes) {
    const auto grammar = compile(test::regex(regex));
    ASSERT_NE(grammar, nullptr) << regex;
    const std::regex oracle(regex, std::regex::ECMAScript);
    for (const std::string& text : texts) {
      EXPECT_EQ(test::takes(grammar, text), std::regex_match(text, oracle)) << regex << " on " << text;
    }
  }
}

TEST_F(TextRules, RegexesMayHaveFlagsForLettersAndLineEnds) {
  const auto letters = compile(test::regex("(?i)a[b-c]1"));
  for (const char* text : {"ab1", "AC1", "aB1"}) EXPECT_TRUE(test::takes(letters, text)) << text;
  EXPECT_FALSE(test::takes(letters, "ad1"));
  const auto within = compile(test::regex("a(?i:b)c(?s:.)."));
  EXPECT_TRUE(test::takes(within, "aBc\nx"));
  EXPECT_FALSE(test::takes(within, "ABcxx"));
  EXPECT_FALSE(test::takes(within, "abcx\n"));
}

TEST_F(TextRules, IsbnsAreFoundByLookingAhead) {
  const auto grammar = compile(test::regex(
      "(?:ISBN(?:-1[03])?:? )?(?=[0-9X]{10}$|(?=(?:[0-9]+[- ]){3})[- 0-9X]{13}$|97[89][0-9]{10}$|(?=(?:[0-9]+[- ]){4})"
      "[- 0-9]{17}$)(?:97[89][- ]?)?[0-9]{1,5}[- ]?[0-9]+[- ]?[0-9]+[- ]?[0-9X]"));
  for (const char* text : {"ISBN 978-0-596-52068-7", "9780596520687", "0-596-52068-9", "ISBN-10: 0596520689"}) {
    EXPECT_TRUE(test::takes(grammar, text)) << text;
  }
  for (const char* text : {"978-0-596-52068", "05965206891", "ISBN 12", "978059652068X"}) {
    EXPECT_FALSE(test::takes(grammar, text)) << text;
  }
}

TEST_F(TextRules, ChoicesAreTakenAsTheyAreWritten) {
  const auto grammar = compile(test::one_of({"yes", "yes.", "no \"no\"", "\xC3\xA9\\n"}));
  for (const char* text : {"yes", "yes.", "no \"no\"", "\xC3\xA9\\n"}) EXPECT_TRUE(test::takes(grammar, text)) << text;
  for (const char* text : {"", "ye", "yesyes", "no", "YES"}) EXPECT_FALSE(test::takes(grammar, text)) << text;
  EXPECT_NE(test::refusal(test::one_of({})), "");
  EXPECT_NE(test::refusal(test::one_of({"\xC3"})), "");
}

TEST_F(TextRules, GrammarsAreReadAsGbnf) {
  const auto grammar = compile(test::ebnf(R"_(
# a sum
root ::= term (" + " term)*
term ::= digit{1,3} | "(" root ")" | ident?
digit ::= [0-9]
ident ::= [^0-9() +\n] | "\x41\u00e9"
)_"));
  for (const char* text : {"1", "12 + 3", "(1 + (2))", "x + 999", "A\xC3\xA9", "", " + "}) {
    EXPECT_TRUE(test::takes(grammar, text)) << text;
  }
  for (const char* text : {"1234", "1+2", "(1", "xx"}) EXPECT_FALSE(test::takes(grammar, text)) << text;
}

TEST_F(TextRules, GrammarsOfLlamaCppAreRead) {
  // json_schema_to_grammar writes such rules for strings, and names rules after properties.
  const auto string = compile(test::ebnf(R"_(
char ::= [^"\\\x7F\x00-\x1F] | [\\] (["\\bfnrt] | "u" [0-9a-fA-F]{4})
2fa-kv ::= "\"" char* "\""
root ::= 2fa-kv)_"));
  for (const char* text : {R"("")", R"("a b")", R"("a\n\u00e9")"}) EXPECT_TRUE(test::takes(string, text)) << text;
  for (const char* text : {"\"\n\"", "\"\x7F\"", R"("\x")"}) EXPECT_FALSE(test::takes(string, text)) << text;
  const auto any = compile(test::ebnf("root ::= .+"));
  EXPECT_TRUE(test::takes(any, "a\nb\r"));
  EXPECT_TRUE(test::takes(compile(test::ebnf("root ::= [^\\0-\\x1f]")), "a"));
  const auto spaced = compile(test::ebnf("root ::= (\"a\" | \"b\") + \"c\" {2}"));
  EXPECT_TRUE(test::takes(spaced, "abacc"));
  EXPECT_FALSE(test::takes(spaced, "c"));
  EXPECT_TRUE(test::takes(compile(test::ebnf("root ::= \"a\nb\" [\n]")), "a\nb\n"));
}

TEST_F(TextRules, GrammarsThatAreWrongAreRefusedWithTheirLine) {
  EXPECT_NE(test::refusal(test::ebnf("root ::= a\n")).find("a"), std::string::npos);
  for (const char* text :
       {"", "x ::= \"a\"", "root ::= \"a", "root ::= [", "root = \"a\"", "root ::= )", "root ::= a{", "root ::= root",
        "root ::= \"\\x00\"", "root ::= root \"a\" | root", "root ::= \"a\"\nroot ::= \"b\""}) {
    EXPECT_NE(test::refusal(test::ebnf(text)), "") << text;
  }
  EXPECT_NE(test::refusal(test::ebnf("root ::= \"a\"\nb ::= [\n")).find("line 2"), std::string::npos)
      << test::refusal(test::ebnf("root ::= \"a\"\nb ::= [\n"));
}

TEST_F(TextRules, JsonObjectsAreObjects) {
  const auto grammar = compile({});
  for (const char* text : {"{}", R"({"a":[1,2,{"b":null}]})", "{ \"a\" : -1.5e+3 }"})
    EXPECT_TRUE(test::takes(grammar, text)) << text;
  for (const char* text : {"[]", "1", "{", R"({"a":1,})", R"({a:1})"}) EXPECT_FALSE(test::takes(grammar, text)) << text;
}

}  // namespace
}  // namespace pagoda::grammar

#include "engine/grammar/lark_rules.hpp"

#include <algorithm>
#include <array>

#include <gtest/gtest.h>

#include "engine/grammar/lark_syntax.hpp"
#include "tests/engine/grammar/grammar_text.hpp"

namespace pagoda::grammar {
namespace {

using LarkTexts = std::vector<std::string>;

struct LarkCase {
  const char* name;
  const char* grammar;
  LarkTexts accepted;
  LarkTexts refused;
};

void PrintTo(const LarkCase& c, std::ostream* out) {
  *out << c.name;
}

std::vector<LarkCase> lark_cases() {
  return {
      {"sums",
       R"x(// a calculator
?start: sum
?sum: product
    | sum "+" product   -> add
    | sum "-" product   -> sub
?product: atom
    | product "*" atom  -> mul
?atom: NUMBER           -> number
    | "-" atom          -> neg
    | "(" sum ")"
%import common.NUMBER
%import common.WS_INLINE
%ignore WS_INLINE
)x",
       {"1", "1+2", "1 + 2.5 * (3 - -4e2) ", "-1"},
       {"", "1+", " 1", "1 2", "(1", "1\n+2"}},
      {"one_rule", "?start: number\nnumber: /[0-9]+/\n", {"1", "1234"}, {"", "a", "1a"}},
      {"quantifiers",
       R"x(start: "a"? b* "c"+ ["d"] e~2 f ~ 1..2
b: "b"
e: "e" | "E"
!f.2: "f" -> alias)x",
       {"ceef", "abbccdeEff"},
       {"eef", "cef", "ceefff", "cddeef"}},
      {"quantifiers_of_llguidance",
       "start: a{3} \"b\"{1,2} \"c\"{,1} \"d\"{2,}\na: \"x\"",
       {"xxxbdd", "xxxbbcddd"},
       {"xxbdd", "xxxdd", "xxxbd", "xxxbccdd"}},
      {"terminals",
       R"x(start: KEY "=" (VALUE | "none"i) "."
KEY.3: LETTER (LETTER | "_" | DIGIT)*
VALUE: /0x[0-9a-f]+/i | "a".."c" | "\"" /[^"\\]/* "\""
%import common (LETTER, DIGIT)
%import common.HEXDIGIT -> HEX)x",
       {"k_1=0XfF.", "k=b.", "k=NONE.", "k=\"x y\".", "K=None."},
       {"1=b.", "k=d.", "k=0x.", "k=\"\\\"."}},
      {"groups_over_lines",
       "start: (\n  \"a\"   // one\n  | \"b\"  # two\n)\n\n\n  | \"c\"\nother: \"x\"\n",
       {"a", "b", "c"},
       {"ac", "x"}},
      {"a_group_over_lines_goes_on", "start: (\"a\"\n | \"b\")+ \"c\"\n", {"ac", "bac"}, {"c", "a"}},
      {"flags_of_regexes",
       "start: /a.b/s | /c.d/ | /(?s:e.)f/ | /\\/\\w/i",
       {"a\nb", "cxd", "e\nf", "/X"},
       {"c\nd", "\\/x"}},
      {"comments_and_strings",
       "start: C S\nC: C_COMMENT | SH_COMMENT LF\nS: ESCAPED_STRING\n%import common (C_COMMENT, SH_COMMENT, LF, "
       "ESCAPED_STRING)",
       {"/* a * b **/\"x\"", "# a\n\"a\\\"b\""},
       {"/* a */ */\"x\"", "# a\"x\"", "/**/\"a"}},
      {"json",
       R"x(%llguidance {}

start: "call " args

args[capture]: %json {
  "type": "object",
  "properties": {"a": {"type": "integer"}, "s": {"enum": ["}"]}},
  "required": ["a"],
  "x-guidance": {"whitespace_flexible": false, "item_separator": ", ", "key_separator": ": "}
}
)x",
       {R"(call {"a": 1})", R"(call {"a": 1, "s": "}"})"},
       {R"(call {"a":1})", R"(call { "a": 1})", "call {}", R"(call {"a": 1,"s": "}"})"}},
      {"json_with_free_space",
       R"x(start: %json {"type":"array","items":{"type":"null"}})x",
       {"[]", "[null, null]"},
       {"[1]"}},
      {"rules_that_end_by_themselves",
       "%llguidance {}\nstart: line \"|\" word x\nline[capture=\"l\", stop=\"|\"]: /[^\\n]*/\nword[lazy]: /[a-z]*;/\n"
       "x[suffix=/[!?]/, stop_capture]: X\nX: /(?s:.*)/",
       {"ab||cd;e!", "||;?"},
       {"ab|cd;e!", "a\n||b;!", "||a;b;c"}},
      {"terminals_that_are_joined", "start: A\nA: /[a-z]{2,3}/ & /.*b/", {"ab", "xyb"}, {"b", "abc", "wxyb"}},
      {"ignored_before_the_first",
       "%llguidance {\"allow_initial_skip\": true}\nstart: \"a\" \"b\"\n%ignore / +/",
       {" a  b ", "ab"},
       {"a\tb"}},
      {"recursion", "start: \"(\" start \")\" | \"\"\n", {"", "()", "((()))"}, {"(", "())"}},
      {"what_is_not_needed", "start: \"a\"\nunused: missing UNKNOWN\nX: /(?<=a)b/\n", {"a"}, {""}},
  };
}

class LarkGrammars : public testing::TestWithParam<LarkCase> {};
INSTANTIATE_TEST_SUITE_P(All, LarkGrammars, testing::ValuesIn(lark_cases()),
                         [](const auto& one) { return std::string(one.param.name); });

TEST_P(LarkGrammars, AcceptWhatTheTableSays) {
  ASSERT_TRUE(is_lark(GetParam().grammar));
  const auto compiled = test::word_compiler()->compile(test::ebnf(GetParam().grammar));
  ASSERT_TRUE(compiled) << compiled.error().message;
  for (const auto& text : GetParam().accepted) EXPECT_TRUE(test::takes(*compiled, text)) << text;
  for (const auto& text : GetParam().refused) EXPECT_FALSE(test::takes(*compiled, text)) << text;
}

TEST(LarkRules, AreToldFromEbnf) {
  for (const char* text : {"root ::= \"a\"", "# c: d\nroot::= \"a\"", "  \n root  ::= x", "", "root"}) {
    EXPECT_FALSE(is_lark(text)) << text;
  }
  for (const char* text : {"start: a", "?start : a", "# c\n// d\n\n  start: \"::=\"", "%import common.INT\nstart: INT",
                           "A.2: \"a\"", "x[lazy]: /a/", "!x: y", "r{a}: a"}) {
    EXPECT_TRUE(is_lark(text)) << text;
  }
}

struct LarkRefusal {
  const char* grammar;
  const char* reason;
};

TEST(LarkRules, RefusalsNameTheLineAndWhatIsNotSupported) {
  const std::vector<LarkRefusal> all{
      {"a: \"b\"\n", "no rule start"},
      {"start: b\n", "no rule b"},
      {"start: \"a\"\n  B\n", "line 2"},
      {"start: B\n", "no terminal B"},
      {"start: \"a\"\nstart: \"b\"\n", "line 2"},
      {"start: A\n\nA: b\nb: \"x\"", "line 3"},
      {"start: A\nA: \"(\" A \")\"", "names itself"},
      {"start: A\nA: B\nB: A", "names itself"},
      {"start: A\n%declare A", "%declare"},
      {"start: A\n%import python.A", "common"},
      {"start: A\n%import common.NONE -> A", "NONE"},
      {"%extend start: A", "%extend"},
      {"start: sep{\"a\"}\nsep{x}: x", "templates"},
      {"start: /a(?=b)/ \"b\"", "looks ahead"},
      {"start: /(?<!a)b/", "look-behind"},
      {"start: /a/x", "flag x"},
      {"start: /a", "without its /"},
      {"start: \"a", "without its end"},
      {"start: (\"a\"", "without its )"},
      {"start: \"a\"~", "repetition"},
      {"start: \"a\"~3..2", "swapped"},
      {"start: \"z\"..\"a\"", "swapped"},
      {"start: \"ab\"..\"c\"", "range"},
      {"start: <|im_end|>", "special token"},
      {"start: <[12]>", "special token"},
      {"start: @other", "grammar of another list"},
      {"start: %regex {\"substring_words\": \"a b\"}", "%json"},
      {"start: A\nA: ~/a/", "complement"},
      {"start: %json {\"type\": \"nothing\"}", "type"},
      {"start: %json {\"type\"", "JSON"},
      {"%llguidance {\"lexer_stack\": 5}\nstart: \"a\"", "lexer_stack"},
      {"start: x\nx[max_tokens=0]: /a*/", "max_tokens"},
      {"start: x\nx[max_tokens=5]: y\ny: \"a\"", "rule y"},
      {"start: x\nx[temperature=0.5]: /a*/", "temperature"},
      {"start: x\nx[lazy]: y\ny: \"a\"", "rule y"},
      {"start: a & b\na: \"x\"\nb: \"x\"", "&"},
      {"start: \"a\" )", "not expected"},
      {"start: \"\\q\"", "\\q"},
      {"start: \"a\" -> \n", "name must follow"},
      {"start: start", "no text"},
  };
  for (const auto& [grammar, reason] : all) {
    const std::string refusal = test::refusal(test::ebnf(grammar));
    EXPECT_NE(refusal.find(reason), std::string::npos) << grammar << ": " << refusal;
  }
}

/// A rule with max_tokens ends after this many tokens, even if its text is not complete.
TEST(LarkRules, AreOverBehindTheirMostTokens) {
  const auto grammar =
      test::word_compiler()->compile(test::ebnf("%llguidance {}\nstart: \"<\" x \">\" y\nx[capture, max_tokens=3]: "
                                                "/[a-z]*/\ny[max_tokens=2, stop=\";\"]: /(?s:.*)/"));
  ASSERT_TRUE(grammar) << grammar.error().message;
  const auto accepts = [&](const TokenIds& tokens) {
    Matcher matcher(*grammar);
    return std::ranges::all_of(tokens, [&](TokenId token) { return matcher.accept(token); });
  };
  const TokenId ab = test::kWordEnd + 13;  // "ab"
  ASSERT_EQ((*grammar)->bytes_of(ab), "ab");
  EXPECT_TRUE(accepts({'<', '>', ';', test::kWordEnd}));
  EXPECT_TRUE(accepts({'<', 'a', ab, 'b', '>'}));
  EXPECT_FALSE(accepts({'<', 'a', ab, 'b', 'c'}));
  EXPECT_TRUE(accepts({'<', 'a', '>', 'x', 'y', test::kWordEnd}));  // ends without its stop string
  EXPECT_FALSE(accepts({'<', 'a', '>', 'x', test::kWordEnd}));      // ends neither by its stop string nor by its tokens
  EXPECT_TRUE(accepts({'<', 'a', '>', 'x', ';', test::kWordEnd}));
  EXPECT_FALSE(accepts({'<', 'a', '>', 'x', 'y', 'z'}));
  EXPECT_TRUE(accepts({'<', 'a', '>', 0xC3, 0xA9, 'y', test::kWordEnd}));  // a token inside a character is no end
  Matcher matcher(*grammar);
  for (const TokenId token : {TokenId{'<'}, TokenId{'a'}, ab, TokenId{'b'}}) ASSERT_TRUE(matcher.accept(token));
  EXPECT_EQ(test::allowed(matcher), TokenIds{'>'});
}

/// Any text is read or refused, and grammars that are read have texts.
TEST(LarkRules, AnyTextIsReadOrRefused) {
  std::mt19937 random(7);
  const auto below = [&](std::size_t end) { return random() % end; };
  std::vector<std::string> seeds;
  for (const LarkCase& one : lark_cases()) seeds.emplace_back(one.grammar);
  constexpr std::array kParts{"start: ",
                              "\n",
                              "|",
                              "(",
                              ")",
                              "[",
                              "]",
                              "~2..3",
                              "{2,}",
                              "/a.*/s",
                              "\"x\"i",
                              "A",
                              "b",
                              "&",
                              "->",
                              ":",
                              "%json {\"type\":\"null\"}",
                              "%import common.INT",
                              "%ignore A",
                              "..",
                              "[lazy]",
                              "?",
                              "*",
                              "+",
                              "\\",
                              "\xC3",
                              "//",
                              "#",
                              "A: /[a-c]/\n",
                              "\"\\u0041\""};
  int num_read = 0;
  for (int i = 0; i < 4000; ++i) {
    std::string text = seeds[below(seeds.size())];
    for (std::size_t num = 1 + below(4); num > 0; --num) {
      const std::size_t place = below(text.size() + 1);
      switch (below(4)) {
        case 0:
          text.insert(place, kParts[below(kParts.size())]);
          break;
        case 1:
          text.erase(place, 1 + below(8));
          break;
        case 2:
          text.insert(place, 1, static_cast<char>(below(256)));
          break;
        default:
          const std::string& other = seeds[below(seeds.size())];
          text.insert(place, other.substr(below(other.size()), 1 + below(30)));
      }
    }
    const auto rules = lark_rules(text);
    if (!rules) {
      EXPECT_FALSE(rules.error().message.empty());
      EXPECT_LT(rules.error().message.size(), 1000U);
      continue;
    }
    ++num_read;
    if (i % 8 == 0) static_cast<void>(test::refusal(test::ebnf(text)));
  }
  EXPECT_GT(num_read, 200);
}

}  // namespace
}  // namespace pagoda::grammar

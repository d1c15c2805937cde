// Compares masks, bit for bit, with those that XGrammar makes of the same rules.

#if PAGODA_HAS_XGRAMMAR

#include <array>
#include <random>

#include <gtest/gtest.h>
#include <xgrammar/compiler.h>
#include <xgrammar/matcher.h>
#include <xgrammar/tokenizer_info.h>

#include "engine/grammar/grammar_rules.hpp"
#include "kernels/sample.hpp"
#include "tests/engine/grammar/grammar_text.hpp"
#include "tests/engine/grammar/xgrammar_text.hpp"

namespace pagoda::grammar {
namespace {

using Words = std::vector<std::uint32_t>;

/// Returns the words of test::word_tokenizer(), and runs and mixtures of the texts in these grammars.
std::vector<std::string> tokens() {
  const auto tokenizer = test::word_tokenizer();
  std::vector<std::string> all(test::kWordVocab);
  for (TokenId id = 0; id < static_cast<TokenId>(tokenizer->vocab_size()); ++id) {
    all[static_cast<std::size_t>(id)] = tokenizer->token_bytes(id).value_or("");
  }
  return all;
}

class XGrammar {
 public:
  XGrammar()
      : compiler_(xgrammar::TokenizerInfo(tokens(), xgrammar::VocabType::RAW, test::kWordVocab,
                                          std::vector<std::int32_t>{test::kWordEnd}),
                  1, false) {}
  xgrammar::GrammarMatcher matcher(const Rules& rules) {
    return xgrammar::GrammarMatcher(compiler_.CompileGrammar(test::xgrammar_text(rules)));
  }

 private:
  xgrammar::GrammarCompiler compiler_;
};

Words mask_of(xgrammar::GrammarMatcher& matcher) {
  Words words(kernels::mask_words(test::kWordVocab));
  auto size = static_cast<std::int64_t>(words.size());
  DLTensor tensor{};
  tensor.data = words.data();
  tensor.device = {kDLCPU, 0};
  tensor.ndim = 1;
  tensor.dtype = xgrammar::GetBitmaskDLType();
  tensor.shape = &size;
  matcher.FillNextTokenBitmask(&tensor);
  words.back() &= (1U << test::kWordVocab % 32) - 1;  // XGrammar also sets bits behind the vocabulary
  return words;
}

Words mask_of(Matcher& matcher) {
  Words words(kernels::mask_words(test::kWordVocab));
  matcher.fill_mask(words);
  return words;
}

/// Compares random walks by both. Returns how many masks were compared.
int compare(const StructuredOutput& constraint, std::mt19937& random, int num_walks, int num_steps) {
  const auto rules = grammar_rules(constraint);
  if (!rules) return 0;
  const auto compiled = test::word_compiler()->compile(constraint);
  if (!compiled) return 0;
  static XGrammar reference;
  int num_compared = 0;
  for (int walk = 0; walk < num_walks; ++walk) {
    Matcher ours(*compiled);
    xgrammar::GrammarMatcher theirs = reference.matcher(*rules);
    std::string text;
    for (int step = 0; step < num_steps; ++step) {
      const Words mask = mask_of(ours);
      const Words right = mask_of(theirs);
      ++num_compared;
      if (mask != right) {
        std::string differ;
        for (TokenId id = 0; id < test::kWordVocab; ++id) {
          const auto has = [&](const Words& words) {
            return (words[static_cast<std::size_t>(id / 32)] >> (id % 32)) & 1U;
          };
          if (has(mask) != has(right)) differ += " " + std::to_string(id) + (has(mask) != 0 ? "+" : "-");
        }
        ADD_FAILURE() << "behind " << testing::PrintToString(text) << ":" << differ << "\nof "
                      << test::xgrammar_text(*rules).substr(0, 3000);
        return num_compared;
      }
      TokenIds allowed;
      for (TokenId id = 0; id < test::kWordVocab; ++id) {
        if ((mask[static_cast<std::size_t>(id / 32)] >> (id % 32) & 1U) != 0) allowed.push_back(id);
      }
      if (allowed.empty()) {
        ADD_FAILURE() << "nothing may follow " << text;
        return num_compared;
      }
      // Prefers words to bytes: most grammars allow far more bytes.
      std::erase_if(allowed, [&](TokenId id) { return allowed.size() > 1 && id < 256 && random() % 4 != 0; });
      const TokenId next = allowed.empty() ? test::kWordEnd : allowed[random() % allowed.size()];
      EXPECT_EQ(ours.accept(next), theirs.AcceptToken(next)) << text;
      if (ours.has_ended()) break;
      if (next != test::kWordEnd) text += tokens()[static_cast<std::size_t>(next)];
    }
  }
  return num_compared;
}

/// Returns an EBNF of random rules over few characters, which are often ambiguous, empty or recursive.
std::string random_grammar(std::mt19937& random) {
  const auto below = [&](unsigned n) { return random() % n; };
  const int num_rules = 1 + static_cast<int>(below(4));
  const auto expression = [&](const auto& self, int depth) -> std::string {
    switch (depth == 0 ? below(4) : below(10)) {
      case 0:
        return "\"" + std::string(1 + below(2), static_cast<char>('a' + below(2))) + "\"";
      case 1:
        return std::array{"[a-c]", "[^b]", "[a\xC3\xA9-\xE2\x82\xAC]", "[0-9]"}[below(4)];
      case 2:
        return "\"\"";
      case 3:
        return "r" + std::to_string(below(static_cast<unsigned>(num_rules)));
      case 4:
        return "(" + self(self, depth - 1) + ")*";
      case 5:
        return "(" + self(self, depth - 1) + ")?";
      case 6:
        return "(" + self(self, depth - 1) + "){" + std::to_string(below(3)) + "," + std::to_string(2 + below(3)) + "}";
      case 7:
        return "(" + self(self, depth - 1) + " | " + self(self, depth - 1) + ")";
      default:
        return self(self, depth - 1) + " " + self(self, depth - 1);
    }
  };
  std::string text = "root ::= " + expression(expression, 4) + "\n";
  for (int i = 0; i < num_rules; ++i) text += "r" + std::to_string(i) + " ::= " + expression(expression, 3) + "\n";
  return text;
}

TEST(MasksAreXGrammars, OfSchemasRegexesAndTags) {
  std::mt19937 random(1);
  const auto tag = [](const std::string& format) {
    return StructuredOutput{GrammarKind::structural_tag, R"({"type":"structural_tag","format":)" + format + "}", {}};
  };
  const std::vector<StructuredOutput> constraints{
      {},
      {GrammarKind::json_object, {}, {}},
      test::schema(
          R"({"type":"object","properties":{"name":{"type":"string"},"n":{"type":"integer","minimum":-3,"maximum":120},
          "s":{"type":"string","minLength":2,"maxLength":5},"t":{"type":"string","format":"date-time"}},"required":["n"]})"),
      test::schema(R"({"type":"array","items":{"enum":["ab","abc",true,null]},"minItems":1,"maxItems":3})"),
      test::schema(
          R"({"type":"object","additionalProperties":{"type":"number"},"propertyNames":{"pattern":"^[ab]+$"}})"),
      test::schema(
          R"({"$defs":{"t":{"type":"object","properties":{"a":{"$ref":"#/$defs/t"},"b":{"type":"null"}}}},"$ref":"#/$defs/t"})"),
      test::regex("(a|ab|ABBA)+[0-9]{2,4}\xC3\xA9?"),
      test::regex("[\\s\\S]*"),
      test::regex("(a?b?){2,30}c"),
      test::regex("[^a]{0,40}\\d"),
      test::one_of({"yes", "no", "maybe", "yes, maybe"}),
      test::ebnf("root ::= \"a\" root \"b\" | \"\""),
      test::ebnf("root ::= root \"a\" | \"b\" | root \",\" root"),
      test::ebnf("root ::= e\ne ::= e \"+\" t | t\nt ::= \"(\" e \")\" | [0-9]+"),
      tag(R"({"type":"any_text","excludes":["ab","ba!"]})"),
      tag(R"({"type":"triggered_tags","triggers":["ab"],"tags":[{"begin":"ab","content":{"type":"regex","pattern":"[0-9]+"},"end":"!"},
          {"begin":"abba","content":{"type":"json_schema","json_schema":{"type":"boolean"}},"end":["x","yy"]}],"excludes":["no"]})"),
      tag(R"({"type":"sequence","elements":[{"type":"any_text","excludes":["aab"]},{"type":"const_string","value":"aab"},
          {"type":"json_schema","json_schema":{}}]})")};
  int num_compared = 0;
  for (const StructuredOutput& constraint : constraints) num_compared += compare(constraint, random, 6, 60);
  EXPECT_GT(num_compared, 2000);
}

TEST(MasksAreXGrammars, OfRandomGrammars) {
  std::mt19937 random(2);
  int num_compared = 0;
  for (int i = 0; i < 400 && !HasFailure(); ++i) {
    num_compared += compare(test::ebnf(random_grammar(random)), random, 3, 12);
  }
  EXPECT_GT(num_compared, 3000);
}

}  // namespace
}  // namespace pagoda::grammar

#endif  // PAGODA_HAS_XGRAMMAR

#include "engine/grammar/compiled_grammar.hpp"

#include <atomic>
#include <thread>

#include <gtest/gtest.h>

#include "engine/grammar/grammar_cache.hpp"
#include "engine/grammar/limits.hpp"
#include "engine/text/unicode.hpp"
#include "tests/engine/grammar/grammar_text.hpp"

namespace pagoda::grammar {
namespace {

std::vector<StructuredOutput> constraints() {
  return {{},
          test::schema(R"({"type":"object","properties":{"name":{"type":"string"},"n":{"type":"integer"}}})"),
          test::schema(R"({"type":"array","items":{"enum":["ab","abc",true,null]},"maxItems":5})"),
          test::schema(R"({"type":"array","items":{"type":"string","minLength":3,"maxLength":24}})"),
          test::regex("(a|ab|ABBA)+[0-9]{2,4}\xC3\xA9?"),
          test::regex("[^b]{0,40}"),
          {GrammarKind::structural_tag, R"({"format":{"type":"any_text","excludes":["aab","no"]}})", {}},
          test::one_of({"yes", "no", "maybe", "yes, maybe"}),
          test::ebnf("root ::= \"a\" root \"b\" | \"\"")};
}

TEST(CompiledGrammars, MasksHoldTheTokensThatAreAccepted) {
  const auto compiler = test::word_compiler();
  std::mt19937 random(3);
  for (const StructuredOutput& constraint : constraints()) {
    const SharedGrammar grammar = compiler->compile(constraint).value();
    for (int walk = 0; walk < 8; ++walk) {
      Matcher matcher(grammar);
      for (int step = 0; step < 40 && !matcher.has_ended(); ++step) {
        TokenIds accepted;
        for (TokenId id = 0; id < test::kWordVocab; ++id) {
          if (matcher.fork().accept(id)) accepted.push_back(id);
        }
        ASSERT_EQ(test::allowed(matcher), accepted);
        ASSERT_FALSE(accepted.empty());
        ASSERT_TRUE(matcher.accept(accepted[random() % accepted.size()]));
      }
    }
  }
}

TEST(CompiledGrammars, AreWhatTheirTokensSpellWhateverTheTokens) {
  const SharedGrammar grammar = test::word_compiler()->compile(test::schema(R"({"const":{"name":true}})")).value();
  const auto tokenizer = test::word_tokenizer();
  const auto walk = [&](const std::vector<std::string>& parts) {
    Matcher matcher(grammar);
    for (const std::string& part : parts) {
      bool found = false;
      for (TokenId id = 0; id < static_cast<TokenId>(tokenizer->vocab_size()) && !found; ++id) {
        found = tokenizer->token_bytes(id) == part && matcher.accept(id);
      }
      if (!found) return false;
    }
    return matcher.accept(test::kWordEnd);
  };
  EXPECT_TRUE(walk({"{\"", "n", "a", "m", "e", "\":", "true", "}"}));
  EXPECT_TRUE(walk({"{", "\"name", "\":", "tru", "e}"}));
  EXPECT_FALSE(walk({"{", "\"name", "\":", "tru", "e"}));
}

TEST(CompiledGrammars, EndOnlyWhereATextMay) {
  const SharedGrammar grammar = test::word_compiler()->compile(test::one_of({"ab", "abA"})).value();
  Matcher matcher(grammar);
  EXPECT_FALSE(matcher.accept(test::kWordEnd));
  EXPECT_TRUE(matcher.accept('a'));
  EXPECT_TRUE(matcher.accept('b'));
  EXPECT_EQ(test::allowed(matcher), (TokenIds{'A', test::kWordEnd}));
  EXPECT_TRUE(matcher.accept(test::kWordEnd));
  EXPECT_TRUE(matcher.has_ended());
  EXPECT_FALSE(matcher.accept('A'));
}

TEST(CompiledGrammars, ForksGoOnByThemselves) {
  const SharedGrammar grammar = test::word_compiler()->compile(test::regex("a(b|A)c?")).value();
  Matcher parent(grammar);
  ASSERT_TRUE(parent.accept('a'));
  Matcher child = parent.fork();
  EXPECT_TRUE(child.accept('b'));
  EXPECT_FALSE(child.accept('A'));
  EXPECT_TRUE(parent.accept('A'));
  EXPECT_EQ(test::allowed(parent), test::allowed(child));
}

TEST(CompiledGrammars, NothingFollowsWhereTheMasksOfARequestTakeMoreThanTheirBudget) {
  // The work of a mask grows with the length of the text. A counted repetition takes little work, so it is written out.
  std::string regex = "[ab]*a";
  for (int i = 0; i < 900; ++i) regex += "[ab]";
  const auto grammar = test::word_compiler()->compile(test::regex(regex)).value();
  std::mt19937 random(3);
  const auto go_on = [&](Matcher& matcher, int most) {
    int count = 0;
    for (; count < most && !test::allowed(matcher).empty(); ++count) matcher.accept(random() % 2 == 0 ? 'a' : 'b');
    return count;
  };
  Matcher matcher(grammar, std::make_shared<MaskBudget>(MaskBudget{3000, 10}));
  Matcher sibling = matcher.fork();
  const int length = go_on(matcher, 900);
  EXPECT_GT(length, 5);
  EXPECT_LT(length, 200);
  EXPECT_LT(go_on(sibling, 900), 30);  // it has the budget that its sibling has left
  Matcher other(grammar);
  EXPECT_EQ(go_on(other, 900), 900);
  Matcher slow(grammar, std::make_shared<MaskBudget>(MaskBudget{0, 10'000}));  // each mask earns the budget of the next
  EXPECT_EQ(go_on(slow, 900), 900);
}

TEST(CompiledGrammars, AreUsedFromManyThreadsAtOnce) {
  const auto grammar = test::word_compiler()->compile(test::schema(
      R"({"type":"object","properties":{"a":{"type":"string","pattern":"^[ab]{2,9}$"},"b":{"type":"array","items":{"type":"integer"}}}})"));
  ASSERT_TRUE(grammar) << grammar.error().message;
  std::vector<std::thread> threads;
  std::atomic<int> num_texts = 0;
  for (unsigned seed = 1; seed <= 4; ++seed) {
    threads.emplace_back([&, seed] {
      std::mt19937 random(seed);
      for (int i = 0; i < 20; ++i) {
        const auto text = test::random_text(*grammar, random);
        num_texts += text && test::takes(*grammar, *text) ? 1 : 0;
        EXPECT_GT((*grammar)->num_bytes(), 0U);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_GT(num_texts, 40);
}

TEST(CompiledGrammars, AreForgottenAndFoundAgainWhereTheyTakeMuchMemory) {
  // Each "a" is nested in the one before, so all places differ.
  const SharedGrammar grammar = test::word_compiler()->compile(test::ebnf("root ::= \"a\" root \"b\" | \"c\"")).value();
  constexpr int kDepth = 60'000;
  std::vector<Matcher> matchers;
  matchers.emplace_back(grammar);
  for (int i = 0; i < kDepth; ++i) {
    ASSERT_TRUE(matchers.front().accept('a'));
    if (i % 20'000 == 0) matchers.push_back(matchers.front().fork());
    ASSERT_LT(grammar->num_bytes(), 6 * kMaxItemSetBytes);
  }
  for (std::size_t i = 0; i < matchers.size(); ++i) {
    const int depth = i == 0 ? kDepth : 20'000 * (static_cast<int>(i) - 1) + 1;
    Matcher& matcher = matchers[i];
    ASSERT_TRUE(matcher.accept('c'));
    for (int k = 0; k < depth; ++k) {
      if (k % 10'000 == 0) {
        EXPECT_EQ(test::allowed(matcher), TokenIds{'b'});
      }
      ASSERT_TRUE(matcher.accept('b')) << k;
    }
    EXPECT_EQ(test::allowed(matcher), TokenIds{test::kWordEnd});
    EXPECT_TRUE(matcher.accept(test::kWordEnd));
  }
}

TEST(CompiledGrammars, NeedAnEndTokenAndTokensWithTexts) {
  const auto no_end = Compiler::create(*test::word_tokenizer(), {.vocab_size = test::kWordVocab, .eos_token_ids = {}});
  ASSERT_FALSE(no_end);
  EXPECT_EQ(no_end.error().code, ErrorCode::unsupported);
  EXPECT_EQ(no_end.error().param, "structured_outputs");
}

TEST(CompiledGrammars, ASmallerVocabularyThanTheTokenizersIsTheModels) {
  const auto compiler =
      Compiler::create(*test::word_tokenizer(), {.vocab_size = 257, .eos_token_ids = {test::kWordEnd, 9999}}).value();
  const SharedGrammar grammar = compiler->compile(test::one_of({"yes"})).value();
  EXPECT_EQ(grammar->vocab_size(), 257);
  EXPECT_TRUE(test::takes(grammar, "yes"));
}

TEST(CompiledGrammars, TheCacheKeepsWhatWasUsedLast) {
  const auto compiler = test::word_compiler();
  const auto constraint = [](int i) { return test::one_of({"yes" + std::to_string(i)}); };
  const auto grammar = [&](int i) { return compiler->compile(constraint(i)).value(); };
  const std::size_t max_bytes = 5 * grammar(0)->num_bytes();
  GrammarCache cache(max_bytes);
  EXPECT_EQ(cache.find(constraint(0)), nullptr);
  for (int i = 0; i < 30; ++i) {
    cache.keep(constraint(i), grammar(i));
    EXPECT_NE(cache.find(constraint(0)), nullptr) << i;  // used again each time, so it stays
    EXPECT_NE(cache.find(constraint(i)), nullptr);
    EXPECT_LE(cache.num_bytes(), max_bytes);
  }
  EXPECT_EQ(cache.find(constraint(1)), nullptr);
}

TEST(CompiledGrammars, SpecialTokensStandForTheirTextOnlyWhereTheyAreMarks) {
  text::TokenizerSpec spec;
  for (int byte = 0; byte < 256; ++byte) {
    spec.model.vocab.emplace_back(text::byte_level_character(static_cast<std::uint8_t>(byte)), byte);
  }
  constexpr TokenId kEnd = 256;
  constexpr TokenId kCall = 257;
  constexpr TokenId kTurn = 258;
  for (const auto& [text, id] : {std::pair("<end>", kEnd), std::pair("<call>", kCall), std::pair("<turn>", kTurn)}) {
    text::AddedToken& added = spec.added_tokens.emplace_back();
    added.id = id;
    added.content = text;
    added.special = true;
    spec.model.vocab.emplace_back(text, id);
  }
  spec.decoders.emplace().emplace_back(text::ByteLevelDecoder{});
  const auto tokenizer = text::Tokenizer::create(spec).value();
  EXPECT_EQ(tokenizer->special_text(kCall), "<call>");
  EXPECT_EQ(tokenizer->special_text('a'), std::nullopt);
  const StructuredOutput constraint{GrammarKind::structural_tag,
                                    R"({"format":{"type":"triggered_tags","triggers":["<call>"],
    "tags":[{"begin":"<call>","content":{"type":"const_string","value":"f"},"end":""}],"stop_after_first":true}})",
                                    {}};
  const auto matcher_with = [&](std::vector<TokenId> marks) {
    auto compiler =
        Compiler::create(*tokenizer, {.vocab_size = 259, .eos_token_ids = {kEnd}, .marks = std::move(marks)});
    return Matcher((*compiler)->compile(constraint).value());
  };
  Matcher with = matcher_with({kCall});
  EXPECT_TRUE(with.accept('a'));
  EXPECT_FALSE(with.accept(kTurn));
  EXPECT_TRUE(with.accept(kCall));
  EXPECT_FALSE(with.accept('g'));
  EXPECT_TRUE(with.accept('f'));
  EXPECT_TRUE(with.accept(kEnd));
  Matcher without = matcher_with({});
  EXPECT_FALSE(without.accept(kCall));
  for (const char c : std::string("<call>f")) EXPECT_TRUE(without.accept(c));
  EXPECT_TRUE(without.accept(kEnd));
}

}  // namespace
}  // namespace pagoda::grammar

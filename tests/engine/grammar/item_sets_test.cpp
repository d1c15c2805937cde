#include "engine/grammar/item_sets.hpp"

#include <memory>
#include <random>
#include <string_view>

#include <gtest/gtest.h>

#include "tests/engine/grammar/grammar_text.hpp"

namespace pagoda::grammar {
namespace {

using test::automaton_of;

SetId behind(ItemSets& sets, std::string_view text) {
  SetId set = sets.start();
  for (const char c : text) set = sets.next(set, static_cast<std::uint8_t>(c));
  return set;
}

TEST(ItemSets, AreTheSameWhereTheSameMayFollow) {
  const Automaton of = automaton_of({GrammarKind::json_object, {}, {}});
  ItemSets sets(of);
  EXPECT_EQ(behind(sets, R"({"a)"), behind(sets, R"({"b 日本)"));
  EXPECT_EQ(behind(sets, R"({"a": {"b": [1]}, "c": ")"), behind(sets, R"({"": "x)"));
  EXPECT_EQ(behind(sets, R"({"a": [1, {"b": 2}, )"), behind(sets, R"({"a": ["x", )"));
  EXPECT_NE(behind(sets, R"({"a": [1)"), behind(sets, R"({"a": 1)"));
  EXPECT_EQ(behind(sets, R"({"a": [1}])"), ItemSets::kNothing);
  EXPECT_TRUE(sets.is_complete(behind(sets, R"({"a": [1]})")));
  const std::size_t size = sets.size();
  behind(sets, R"({"b": [1]})");
  EXPECT_EQ(sets.size(), size);  // no new set was added
}

TEST(ItemSets, HoldNoMoreOfATailThatIsRepeated) {
  const Automaton of = automaton_of(test::ebnf("root ::= \"a\" root | \"b\""));
  ItemSets sets(of);
  EXPECT_EQ(behind(sets, "a"), behind(sets, "aaaaaaaa"));
}

TEST(ItemSets, ReadRulesThatBeginWithThemselves) {
  const Automaton of = automaton_of(test::ebnf("root ::= e\ne ::= e \"+\" t | t\nt ::= \"(\" e \")\" | [0-9]"));
  ItemSets sets(of);
  EXPECT_TRUE(sets.is_complete(behind(sets, "1+(2+3)+4")));
  EXPECT_FALSE(sets.is_complete(behind(sets, "1+(2+3")));
  EXPECT_EQ(behind(sets, "1+)"), ItemSets::kNothing);
  EXPECT_EQ(behind(sets, "1+2+3"), behind(sets, "1+2+3+4"));
}

TEST(ItemSets, CopiesGoOnAsTheirOriginals) {
  std::mt19937 random(4);
  for (const StructuredOutput& constraint :
       {StructuredOutput{GrammarKind::json_object, {}, {}}, test::regex("(ab|a){2,9}c{3,40}"),
        test::ebnf("root ::= e\ne ::= e \"+\" t | t | \"\"\nt ::= \"(\" e \")\" | [0-9]"),
        test::ebnf("root ::= a a?\na ::= b \"x\" | \"y\"\nb ::= a root \"z\" | \"\"")}) {
    const Automaton of = automaton_of(constraint);
    for (int walk = 0; walk < 20; ++walk) {
      ItemSets sets(of);
      auto copies = std::make_unique<ItemSets>(of);
      SetId set = sets.start();
      SetId copy = copies->copy(sets, set);
      for (int step = 0; step < 40 && !sets.items(set).empty(); ++step) {
        std::vector<std::size_t> classes;
        for (std::size_t c = 0; c < of.num_classes(); ++c) {
          const bool goes_on = sets.next_of_class(set, c) != ItemSets::kNothing;
          ASSERT_EQ(copies->next_of_class(copy, c) != ItemSets::kNothing, goes_on);
          if (goes_on) classes.push_back(c);
        }
        ASSERT_EQ(copies->is_complete(copy), sets.is_complete(set));
        const std::size_t next = classes[random() % classes.size()];
        set = sets.next_of_class(set, next);
        copy = copies->next_of_class(copy, next);
        if (step % 8 != 7) continue;
        auto others = std::make_unique<ItemSets>(of);
        copy = others->copy(*copies, copy);
        copies = std::move(others);
      }
    }
  }
}

}  // namespace
}  // namespace pagoda::grammar

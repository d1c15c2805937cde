#include "engine/grammar/token_masks.hpp"

#include <gtest/gtest.h>

#include "engine/grammar/limits.hpp"
#include "tests/engine/grammar/grammar_text.hpp"

namespace pagoda::grammar {
namespace {

using test::automaton_of;

bool has(std::span<const std::uint32_t> mask, TokenId token) {
  return (mask[static_cast<std::size_t>(token / 32)] >> (token % 32) & 1U) != 0;
}

/// Returns 30 tokens: those of `first`, then letters.
std::vector<std::string> tokens(std::vector<std::string> first) {
  for (char c = 'a'; first.size() < 30; ++c) first.emplace_back(1, c);
  return first;
}

TEST(TokenMasks, AreEmptyWhereTheyWouldTakeTooMuchWork) {
  const Automaton of = automaton_of(test::regex("[^b]*"));
  const Vocabulary vocabulary(tokens({"", "ab", "\xC3"}), {0});
  ItemSets sets(of);
  TokenMasks masks(sets, vocabulary);
  EXPECT_TRUE(masks.mask(sets.start(), 0).empty());
  const auto mask = masks.mask(sets.start(), kMaxMaskWork);
  ASSERT_FALSE(mask.empty());
  EXPECT_TRUE(has(mask, 0));                          // the end token
  EXPECT_FALSE(has(mask, 1));                         // ab
  EXPECT_TRUE(has(mask, 2));                          // the beginning of a character
  EXPECT_TRUE(has(mask, 3));                          // a
  EXPECT_FALSE(has(mask, 4));                         // b
  EXPECT_FALSE(masks.mask(sets.start(), 0).empty());  // the mask is kept
}

TEST(TokenMasks, OfACountedLoopKnowWhichTokensAreTooLong) {
  const Automaton of = automaton_of(test::regex("[^b]{0,20}b"));
  const std::string character = "\xE6\x97\xA5";
  std::string twenty;
  for (int i = 0; i < 20; ++i) twenty += character;
  const Vocabulary vocabulary(tokens({"", std::string(20, 'a'), std::string(21, 'a'), std::string(20, 'a') + "b",
                                      twenty, twenty + character, twenty + "\xE6"}),
                              {0});
  ItemSets sets(of);
  TokenMasks masks(sets, vocabulary);
  const auto mask = masks.mask(sets.start(), kMaxMaskWork);
  const std::vector<bool> expected{false, true, false, true, true, false, false, true, true};
  for (std::size_t id = 0; id < expected.size(); ++id)
    EXPECT_EQ(has(mask, static_cast<TokenId>(id)), expected[id]) << id;
}

TEST(Vocabularies, KnowTheTokensOfAClassAsAWhole) {
  const Vocabulary vocabulary(tokens({"", "a b", "a\"", "\xE6\x97\xA5", "a\xE6\x97", ""}), {5});
  CharacterClass characters{.ascii = {~std::uint64_t{0} & ~(std::uint64_t{1} << '"'), ~std::uint64_t{0}},
                            .has_all_others = true};
  const TokenSlice* const slice = vocabulary.slice(characters);
  ASSERT_NE(slice, nullptr);
  const std::vector<bool> expected{false, true, false, true, false, false, true};
  for (std::size_t id = 0; id < expected.size(); ++id) {
    EXPECT_EQ(has(slice->mask, static_cast<TokenId>(id)), expected[id]) << id;
  }
  EXPECT_EQ(vocabulary.slice(characters), slice);
  EXPECT_EQ(slice->others.height(), 3U);  // "a" and half a character
  characters.has_all_others = false;
  EXPECT_FALSE(has(vocabulary.slice(characters)->mask, 3));
  for (std::size_t i = 2; i < kMaxSlices; ++i) {
    characters.ascii[1] = i;
    EXPECT_NE(vocabulary.slice(characters), nullptr);
  }
  characters.ascii[1] = 77;
  EXPECT_EQ(vocabulary.slice(characters), nullptr);
}

}  // namespace
}  // namespace pagoda::grammar

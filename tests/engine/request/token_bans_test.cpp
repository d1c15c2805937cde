#include "engine/request/token_bans.hpp"

#include <random>
#include <set>

#include <gtest/gtest.h>

#include "kernels/sample.hpp"

namespace pagoda {
namespace {

constexpr std::int64_t kBanVocab = 70;

std::set<TokenId> tokens_of(std::span<const std::uint32_t> mask) {
  std::set<TokenId> tokens;
  for (TokenId token = 0; token < kBanVocab; ++token) {
    if ((mask[static_cast<std::size_t>(token) / 32] >> token % 32 & 1U) != 0) tokens.insert(token);
  }
  return tokens;
}

TEST(TokenBans, AMaskHasTheTokensOfTheVocabulary) {
  const auto mask = token_mask(TokenIds{0, 31, 32, 69, 70, -1, 1000}, kBanVocab);
  EXPECT_EQ(mask.size(), kernels::mask_words(kBanVocab));
  EXPECT_EQ(tokens_of(mask), (std::set<TokenId>{0, 31, 32, 69}));
}

/// vLLM's rule, applied word by word: if the output ends with all tokens of a word but the last, the last one is
/// banned.
std::set<TokenId> banned_by_hand(const std::vector<TokenIds>& words, const TokenIds& output) {
  std::set<TokenId> banned;
  for (const TokenIds& word : words) {
    if (word.size() > output.size() + 1) continue;
    TokenIds with_it(output.end() - static_cast<std::ptrdiff_t>(word.size() - 1), output.end());
    with_it.push_back(word.back());
    if (with_it == word) banned.insert(word.back());
  }
  return banned;
}

TEST(TokenBans, TheLastTokenOfAWordIsBannedWhereTheOthersAreTheEndOfTheOutput) {
  std::mt19937 random(3);
  std::size_t num_banned = 0;
  for (int i = 0; i < 2000; ++i) {
    const auto some = [&](std::size_t count) {
      TokenIds tokens(count);
      for (TokenId& token : tokens) token = static_cast<TokenId>(random() % 3);
      return tokens;
    };
    std::vector<TokenIds> words(1 + random() % 5);
    for (TokenIds& word : words) {
      word = some(random() % 4);
      word.push_back(static_cast<TokenId>(random() % kBanVocab));
    }
    const TokenIds output = some(random() % 6);
    std::vector<std::uint32_t> mask(kernels::mask_words(kBanVocab), ~0U);
    ban_bad_words(words, output, mask);
    const auto banned = banned_by_hand(words, output);
    const auto left = tokens_of(mask);
    for (TokenId token = 0; token < kBanVocab; ++token) ASSERT_EQ(left.contains(token), !banned.contains(token));
    num_banned += banned.size();
  }
  EXPECT_GT(num_banned, 1000U);
}

}  // namespace
}  // namespace pagoda

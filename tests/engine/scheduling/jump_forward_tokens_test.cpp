#include "engine/scheduling/jump_forward_tokens.hpp"

#include <string>
#include <vector>

#include <gtest/gtest.h>

namespace pagoda::scheduling {
namespace {

std::string_view bytes_of(TokenId token) {
  static const std::vector<std::string> kTexts{"", "\"", "\"na", "\"name", "na", ": ", ":", "\n"};
  return kTexts.at(static_cast<std::size_t>(token));
}

TEST(FewTokens, AreAllOfAMaskOrNone) {
  EXPECT_EQ(allowed_tokens_if_few(std::vector<std::uint32_t>{0, 0}), TokenIds());
  EXPECT_EQ(allowed_tokens_if_few(std::vector<std::uint32_t>{0, 1U << 31U | 1U}), (TokenIds{32, 63}));
  EXPECT_EQ(allowed_tokens_if_few(std::vector<std::uint32_t>{0, ~0U}).size(), kMaxAlternatives);
  EXPECT_EQ(allowed_tokens_if_few(std::vector<std::uint32_t>{1, ~0U}), TokenIds());
}

TEST(LikelyToken, IsTheLongestWhereAllWriteTheSame) {
  EXPECT_EQ(likely_token(TokenIds{1, 2, 3}, {}, bytes_of), 3);
  EXPECT_EQ(likely_token(TokenIds{4}, {}, bytes_of), 4);
  EXPECT_EQ(likely_token(TokenIds{3, 4}, {}, bytes_of), std::nullopt);
  EXPECT_EQ(likely_token(TokenIds{}, {}, bytes_of), std::nullopt);
  EXPECT_EQ(likely_token(TokenIds{0}, {}, bytes_of), 0) << "an end has no text";
  EXPECT_EQ(likely_token(TokenIds{0, 3}, {}, bytes_of), std::nullopt) << "it may end here, too";
}

TEST(LikelyToken, IsElseTheOneThatHasFollowedBefore) {
  EXPECT_EQ(likely_token(TokenIds{5, 7}, TokenIds{3, 5, 4, 3}, bytes_of), 5);
  EXPECT_EQ(likely_token(TokenIds{5, 7}, TokenIds{3, 5, 3, 7, 3}, bytes_of), 7) << "the last time";
  EXPECT_EQ(likely_token(TokenIds{5, 7}, TokenIds{3, 5, 3, 4, 3}, bytes_of), 5) << "of those that may follow now";
  EXPECT_EQ(likely_token(TokenIds{5, 7}, TokenIds{5, 3}, bytes_of), std::nullopt);
  TokenIds far(kMaxLookedBack, 1);
  far.insert(far.begin(), {3, 5});
  far.back() = 3;
  EXPECT_EQ(likely_token(TokenIds{5, 7}, far, bytes_of), std::nullopt) << "too far back";
}

}  // namespace
}  // namespace pagoda::scheduling

#include "engine/request/thinking_budget.hpp"

#include <gtest/gtest.h>

namespace pagoda {
namespace {

const ThinkingMarks kMarks{.begin = {1}, .end = {2}, .close = {10, 2}};

/// Returns an output whose free tokens are 5, until the thinking has ended.
TokenIds output_of(const ThinkingBudget& budget, TokenIds output, std::size_t length) {
  ThinkingProgress progress;
  while (output.size() < length) {
    ThinkingProgress anew;
    const auto next = budget.next(output, progress);
    EXPECT_EQ(next, budget.next(output, anew));
    const auto may_be_spent = [&](std::size_t num_known) {
      ThinkingProgress its;
      return budget.may_be_spent(std::span(output).first(num_known), std::ssize(output), its);
    };
    EXPECT_TRUE(!next || may_be_spent(output.size()));
    EXPECT_TRUE(!next || output.empty() || may_be_spent(output.size() - 1));
    output.push_back(next.value_or(5));
  }
  return output;
}

TEST(ThinkingBudget, WritesTheEndBehindSoManyTokens) {
  const TokenIds prompt{3, 4};
  EXPECT_EQ(output_of({kMarks, 3, prompt}, {1}, 8), (TokenIds{1, 5, 5, 5, 10, 2, 5, 5}));
  EXPECT_EQ(output_of({kMarks, 0, prompt}, {1}, 5), (TokenIds{1, 10, 2, 5, 5}));
}

TEST(ThinkingBudget, CountsFromThePromptsEndWhereThatThinks) {
  EXPECT_EQ(output_of({kMarks, 2, TokenIds{3, 2, 1, 4}}, {}, 6), (TokenIds{5, 5, 10, 2, 5, 5}));
  EXPECT_EQ(output_of({kMarks, 0, TokenIds{1}}, {}, 3), (TokenIds{10, 2, 5}));
  EXPECT_EQ(output_of({kMarks, 1, TokenIds{1, 4, 2}}, {}, 4), (TokenIds{5, 5, 5, 5})) << "it has thought";
  EXPECT_EQ(output_of({kMarks, 1, TokenIds{1, 4, 4, 4}}, {}, 4), (TokenIds{5, 5, 5, 5})) << "it speaks of the mark";
}

TEST(ThinkingBudget, LeavesAloneWhoEndsOrDoesNotBegin) {
  EXPECT_EQ(output_of({kMarks, 3, TokenIds{3}}, {1, 5, 2}, 8), (TokenIds{1, 5, 2, 5, 5, 5, 5, 5}));
  EXPECT_EQ(output_of({kMarks, 1, TokenIds{3}}, {}, 6), TokenIds(6, 5));
  const TokenIds late = [] {
    TokenIds tokens(12, 5);
    tokens.push_back(1);
    return tokens;
  }();
  ThinkingProgress progress;
  EXPECT_FALSE(ThinkingBudget(kMarks, 0, TokenIds{3}).next(late, progress))
      << "a begin in the middle of a text is text";
  EXPECT_FALSE(ThinkingBudget(kMarks, 0, TokenIds{3}).may_be_spent(late, std::ssize(late), progress));
}

TEST(ThinkingBudget, NeedsNoMaskBeforeItCanBeSpent) {
  const ThinkingBudget budget(kMarks, 3, TokenIds{1});
  const auto may_be_spent = [&](const TokenIds& output, std::int64_t num_generated) {
    ThinkingProgress progress;
    return budget.may_be_spent(output, num_generated, progress);
  };
  EXPECT_FALSE(may_be_spent({5}, 2));
  EXPECT_TRUE(may_be_spent({5, 5}, 3));
  EXPECT_FALSE(may_be_spent({5, 2}, 3));
}

TEST(ThinkingBudget, FindsAnEndThatComesTokenByToken) {
  const ThinkingBudget budget({.begin = {1}, .end = {2, 2, 3}, .close = {2, 2, 3}}, 100, TokenIds{1});
  ThinkingProgress progress;
  TokenIds output(200, 5);
  EXPECT_FALSE(budget.next(TokenIds(), progress));
  EXPECT_EQ(budget.next(TokenIds(100, 5), progress), 2);
  for (const TokenId token : {2, 2, 2}) {
    output.push_back(token);
    EXPECT_TRUE(budget.may_be_spent(output, std::ssize(output), progress));
  }
  output.push_back(3);
  EXPECT_FALSE(budget.may_be_spent(output, std::ssize(output), progress));
}

TEST(ThinkingBudget, ReadsEachTokenOnce) {
  const ThinkingBudget budget(kMarks, 10, TokenIds{1});
  ThinkingProgress progress;
  TokenIds output(1000, 5);
  EXPECT_TRUE(budget.may_be_spent(output, 1000, progress));
  output[500] = 2;  // an end among tokens that were read before
  EXPECT_TRUE(budget.may_be_spent(output, 1000, progress));
  output.push_back(2);
  EXPECT_FALSE(budget.may_be_spent(output, 1001, progress));
}

}  // namespace
}  // namespace pagoda

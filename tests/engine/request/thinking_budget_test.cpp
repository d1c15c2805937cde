#include "engine/request/thinking_budget.hpp"

#include <gtest/gtest.h>

namespace pagoda {
namespace {

const ThinkingMarks kMarks{.begin = {1}, .end = {2}, .close = {10, 2}};

/// What follows is 5 wherever it is free, until the thinking has ended.
TokenIds output_of(const ThinkingBudget& budget, TokenIds output, std::size_t length) {
  while (output.size() < length) {
    const auto next = budget.next(output);
    EXPECT_TRUE(!next || budget.may_be_spent(output, std::ssize(output)));
    EXPECT_TRUE(!next || output.empty() ||
                budget.may_be_spent(std::span(output).first(output.size() - 1), std::ssize(output)));
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
  EXPECT_FALSE(ThinkingBudget(kMarks, 0, TokenIds{3}).next(late)) << "a begin in the middle of a text is text";
  EXPECT_FALSE(ThinkingBudget(kMarks, 0, TokenIds{3}).may_be_spent(late, std::ssize(late)));
}

TEST(ThinkingBudget, NeedsNoMaskBeforeItCanBeSpent) {
  const ThinkingBudget budget(kMarks, 3, TokenIds{1});
  EXPECT_FALSE(budget.may_be_spent(TokenIds{5}, 2));
  EXPECT_TRUE(budget.may_be_spent(TokenIds{5, 5}, 3));
  EXPECT_FALSE(budget.may_be_spent(TokenIds{5, 2}, 3));
}

}  // namespace
}  // namespace pagoda

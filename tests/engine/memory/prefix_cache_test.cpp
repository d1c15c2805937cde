#include "engine/memory/prefix_cache.hpp"

#include <map>
#include <vector>

#include <gtest/gtest.h>
#include <rapidcheck.h>

namespace pagoda::memory {
namespace {

TEST(PrefixCache, FindsABlockByHashParentAndTokens) {
  PrefixCache cache(4, 2);
  const TokenIds tokens = {5, 6};
  EXPECT_TRUE(cache.insert(3, {1, 2}, {9, 9}, tokens, 1, 0));
  EXPECT_EQ(cache.find({1, 2}, {9, 9}, tokens), 3);
  EXPECT_EQ(cache.find({1, 3}, {9, 9}, tokens), kNoBlock);
}

TEST(PrefixCache, DoesNotBelieveAnEqualHashOfOtherTokensOrAnotherParent) {
  PrefixCache cache(4, 2);
  const TokenIds tokens = {5, 6};
  const TokenIds other = {5, 7};
  cache.insert(3, {1, 2}, {9, 9}, tokens, 1, 0);
  EXPECT_EQ(cache.find({1, 2}, {9, 9}, other), kNoBlock);
  EXPECT_EQ(cache.find({1, 2}, {9, 8}, tokens), kNoBlock);
}

TEST(PrefixCache, KeepsTheFirstBlockOfAHash) {
  PrefixCache cache(4, 2);
  const TokenIds tokens = {5, 6};
  EXPECT_TRUE(cache.insert(3, {1, 2}, {}, tokens, 1, 0));
  EXPECT_FALSE(cache.insert(2, {1, 2}, {}, tokens, 1, 0));
  EXPECT_FALSE(cache.contains(2));
  EXPECT_EQ(cache.find({1, 2}, {}, tokens), 3);
}

TEST(PrefixCache, AgreesWithAMapWhenManyHashesShareABucket) {
  const bool ok = rc::check([] {
    PrefixCache cache(8, 1);
    std::map<BlockId, std::uint64_t> model;
    const auto commands = *rc::gen::container<std::vector<std::pair<int, int>>>(
        rc::gen::pair(rc::gen::inRange(0, 8), rc::gen::inRange(0, 6)));
    for (const auto& [block, number] : commands) {
      // All hashes are in bucket 0 or 1 of 8.
      const std::uint64_t low = static_cast<std::uint64_t>(number) * 8 + static_cast<std::uint64_t>(number % 2);
      const TokenIds tokens = {number};
      bool is_taken = false;
      for (const auto& entry : model) is_taken |= entry.second == low;
      if (model.contains(block)) {
        cache.erase(block);
        model.erase(block);
      } else {
        RC_ASSERT(cache.insert(block, {low, 1}, {}, tokens, 1, 0) == !is_taken);
        if (!is_taken) model[block] = low;
      }
      RC_ASSERT(cache.size() == static_cast<std::int32_t>(model.size()));
      for (const auto& [cached, hash] : model)
        RC_ASSERT(cache.find({hash, 1}, {}, TokenIds{static_cast<TokenId>(hash / 8)}) == cached);
    }
  });
  EXPECT_TRUE(ok);
}

}  // namespace
}  // namespace pagoda::memory

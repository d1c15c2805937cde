#include "engine/memory/prefix_cache.hpp"

#include <map>
#include <tuple>
#include <utility>
#include <vector>

#include <gtest/gtest.h>
#include <rapidcheck.h>

namespace pagoda::memory {
namespace {

TEST(PrefixCache, FindsABlockByHashParentAndTokens) {
  PrefixCache cache(4, 2);
  const TokenIds tokens = {5, 6};
  EXPECT_TRUE(cache.insert(3, 0, {1, 2}, {9, 9}, tokens, 1, 0));
  EXPECT_EQ(cache.find(0, {1, 2}, {9, 9}, tokens), 3);
  EXPECT_EQ(cache.find(0, {1, 3}, {9, 9}, tokens), kNoBlock);
}

TEST(PrefixCache, DoesNotBelieveAnEqualHashOfOtherTokensOrAnotherParent) {
  PrefixCache cache(4, 2);
  const TokenIds tokens = {5, 6};
  const TokenIds other = {5, 7};
  cache.insert(3, 0, {1, 2}, {9, 9}, tokens, 1, 0);
  EXPECT_EQ(cache.find(0, {1, 2}, {9, 9}, other), kNoBlock);
  EXPECT_EQ(cache.find(0, {1, 2}, {9, 8}, tokens), kNoBlock);
}

TEST(PrefixCache, KeepsTheFirstBlockOfAHash) {
  PrefixCache cache(4, 2);
  const TokenIds tokens = {5, 6};
  EXPECT_TRUE(cache.insert(3, 0, {1, 2}, {}, tokens, 1, 0));
  EXPECT_FALSE(cache.insert(2, 0, {1, 2}, {}, tokens, 1, 0));
  EXPECT_FALSE(cache.contains(2));
  EXPECT_EQ(cache.find(0, {1, 2}, {}, tokens), 3);
}

TEST(PrefixCache, KeepsABlockOfEachKvGroupForAHash) {
  PrefixCache cache(4, 2, 2);
  const TokenIds tokens = {5, 6};
  EXPECT_TRUE(cache.insert(3, 0, {1, 2}, {}, tokens, 1, 0));
  EXPECT_EQ(cache.find(1, {1, 2}, {}, tokens), kNoBlock);
  EXPECT_TRUE(cache.insert(2, 1, {1, 2}, {}, tokens, 1, 0));
  EXPECT_EQ(cache.find(1, {1, 2}, {}, tokens), 2);
  EXPECT_EQ(cache.find(0, {1, 2}, {}, tokens), 3);
  EXPECT_EQ(cache.kv_group(2), 1);
}

TEST(PrefixCache, AgreesWithAMapWhenManyHashesShareABucket) {
  const bool ok = rc::check([] {
    PrefixCache cache(8, 1, 2);
    std::map<BlockId, std::pair<KvGroupId, std::uint64_t>> model;
    const auto commands = *rc::gen::container<std::vector<std::tuple<int, int, int>>>(
        rc::gen::tuple(rc::gen::inRange(0, 8), rc::gen::inRange(0, 2), rc::gen::inRange(0, 6)));
    for (const auto& [block, group, number] : commands) {
      // All hashes are in bucket 0, 1 or 2 of 8.
      const std::uint64_t low = static_cast<std::uint64_t>(number) * 8 + static_cast<std::uint64_t>(number % 2);
      const std::pair<KvGroupId, std::uint64_t> key{group, low};
      const TokenIds tokens = {number};
      bool is_taken = false;
      for (const auto& entry : model) is_taken |= entry.second == key;
      if (model.contains(block)) {
        cache.erase(block);
        model.erase(block);
      } else {
        RC_ASSERT(cache.insert(block, group, {low, 1}, {}, tokens, 1, 0) == !is_taken);
        if (!is_taken) model[block] = key;
      }
      RC_ASSERT(cache.size() == static_cast<std::int32_t>(model.size()));
      for (const auto& [cached, entry] : model) {
        const TokenIds own{static_cast<TokenId>(entry.second / 8)};
        RC_ASSERT(cache.find(entry.first, {entry.second, 1}, {}, own) == cached);
      }
    }
  });
  EXPECT_TRUE(ok);
}

}  // namespace
}  // namespace pagoda::memory

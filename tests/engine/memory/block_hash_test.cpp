#include "engine/memory/block_hash.hpp"

#include <set>
#include <utility>

#include <gtest/gtest.h>

namespace pagoda::memory {
namespace {

constexpr HashKey kKey = {0x0706050403020100U, 0x0f0e0d0c0b0a0908U};

TEST(SipHash128, GivesTheValuesOfItsPublishedDefinition) {
  // Inputs 00, 01, 02, ... of 0, 8 and 16 bytes under the key 00, 01, ..., 0f.
  EXPECT_EQ(SipHash128(kKey).finish(), (BlockHash{0xe6a825ba047f81a3U, 0x930255c71472f66dU}));
  SipHash128 eight(kKey);
  eight.add(0x0706050403020100U);
  EXPECT_EQ(eight.finish(), (BlockHash{0x61f55862baa9623bU, 0xb49714f364e2830fU}));
  SipHash128 sixteen(kKey);
  sixteen.add(0x0706050403020100U);
  sixteen.add(0x0f0e0d0c0b0a0908U);
  EXPECT_EQ(sixteen.finish(), (BlockHash{0xbb54b067caa4e26eU, 0x77052385bf1533fdU}));
}

TEST(BlockHash, DiffersWhenAnyPartOfTheKeyDiffers) {
  const TokenIds tokens = {1, 2, 3, 4};
  const TokenIds shorter = {1, 2, 3};
  const TokenIds padded = {1, 2, 3, 0};
  const TokenIds negative = {1, 2, 3, -4};
  std::set<std::pair<std::uint64_t, std::uint64_t>> seen;
  const auto is_new = [&](const BlockHash& hash) { return seen.insert({hash.low, hash.high}).second; };
  const BlockHash root = root_hash(kKey, "", 0);
  EXPECT_TRUE(is_new(root));
  EXPECT_TRUE(is_new(root_hash(kKey, "", 1)));
  EXPECT_TRUE(is_new(root_hash(kKey, "a", 0)));
  EXPECT_TRUE(is_new(root_hash(kKey, "b", 0)));
  EXPECT_TRUE(is_new(root_hash(kKey, std::string_view("a\0", 2), 0)));
  EXPECT_TRUE(is_new(root_hash(kKey, "longer than one word", 0)));
  EXPECT_TRUE(is_new(root_hash(kKey, "longer than one Word", 0)));
  EXPECT_TRUE(is_new(root_hash({kKey[0], 1}, "", 0)));
  EXPECT_TRUE(is_new(chain_hash(kKey, root, tokens)));
  EXPECT_TRUE(is_new(chain_hash(kKey, root, shorter)));
  EXPECT_TRUE(is_new(chain_hash(kKey, root, padded)));
  EXPECT_TRUE(is_new(chain_hash(kKey, root, negative)));
  EXPECT_TRUE(is_new(chain_hash(kKey, chain_hash(kKey, root, tokens), tokens)));
  EXPECT_TRUE(is_new(chain_hash({kKey[0], 1}, root, tokens)));
}

}  // namespace
}  // namespace pagoda::memory

#include "engine/step/kv_layout.hpp"

#include <algorithm>

#include <gtest/gtest.h>

namespace pagoda {
namespace {

TEST(KvGroup, SeesEveryPositionOfTheWindowAndNoBlockBeforeIt) {
  for (int block_size = 1; block_size <= 5; ++block_size) {
    for (int window = 1; window <= 12; ++window) {
      const KvGroup group{.kind = KvKind::window, .block_size = block_size, .window = window};
      for (int position = 0; position < 40; ++position) {
        const int oldest_seen = std::max(0, position - window + 1);
        EXPECT_EQ(group.first_visible_block(position), oldest_seen / block_size);
        // A decoding sequence owns the blocks of its window and its new token, and never more than it reports.
        const int owned = position / block_size - group.first_visible_block(position) + 1;
        EXPECT_LE(owned, (window + block_size - 1) / block_size + 1);
        for (int num_new = 1; num_new <= 9; ++num_new) {
          const int end = group.blocks_for(position + num_new);
          EXPECT_LE(end - group.first_visible_block(position), group.peak_blocks(position + num_new, num_new));
        }
      }
    }
  }
}

TEST(KvGroup, ItsLargestChunkIsTheLongestStepWhoseBlocksFitAPool) {
  for (int block_size = 1; block_size <= 5; ++block_size) {
    for (int window = 1; window <= 12; ++window) {
      const KvGroup group{.kind = KvKind::window, .block_size = block_size, .window = window};
      for (int num_blocks = 1; num_blocks <= 12; ++num_blocks) {
        const int chunk = group.largest_chunk(num_blocks);
        constexpr int kLong = 1000;
        if (group.peak_blocks(kLong, 1) <= num_blocks) {
          EXPECT_LE(group.peak_blocks(kLong, chunk), num_blocks);
          EXPECT_GT(group.peak_blocks(kLong, chunk + 1), num_blocks);
        } else {
          EXPECT_EQ(chunk, 1);
        }
      }
    }
  }
}

TEST(KvGroup, HoldsEveryTokenWithoutAWindowAndWindowChunkAndBlockWithOne) {
  EXPECT_EQ(KvLayout::uniform(16).only().tokens_held(1000, 64), 1000);
  EXPECT_EQ(KvLayout::uniform(16, 100).only().tokens_held(1000, 64), 180);
  EXPECT_EQ(KvLayout::uniform(16, 100).only().tokens_held(150, 64), 150);
}

TEST(KvGroup, ASlotIsThatOfThePositionInItsBlock) {
  const KvGroup group = KvLayout::uniform(4).only();
  EXPECT_EQ(group.block_of(11), 2);
  EXPECT_EQ(group.slot(7, 11), 31);
  EXPECT_EQ(KvLayout::uniform(4, 0, 3, 256).block_bytes(), 768);
}

}  // namespace
}  // namespace pagoda

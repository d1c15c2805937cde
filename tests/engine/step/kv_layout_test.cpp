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

KvLayout full_and_windows(int block_size, int num_windows, int window) {
  KvLayout layout = KvLayout::uniform(block_size, 0, 2, 64);
  for (int i = 0; i < num_windows; ++i) {
    layout.groups.push_back({KvKind::window, block_size, window, 1, 64});
  }
  return layout;
}

TEST(KvLayout, CountsTheBlocksOfAllGroups) {
  const KvLayout layout = full_and_windows(4, 5, 8);
  EXPECT_TRUE(layout.is_valid());
  EXPECT_EQ(layout.block_bytes(), 128) << "the largest group's";
  EXPECT_EQ(layout.table_size(100), 25);
  EXPECT_EQ(layout.peak_blocks(4, 4), 6);
  EXPECT_EQ(layout.peak_blocks(100, 1), 25 + 5 * 3);
}

TEST(KvLayout, ItsLargestChunkAndItsLongestSequenceAreTheLargestThatFit) {
  for (const KvLayout& layout : {full_and_windows(4, 0, 0), full_and_windows(4, 2, 6), KvLayout::uniform(3, 7)}) {
    for (int num_blocks = 1; num_blocks <= 40; ++num_blocks) {
      for (const int num_tokens : {1, 7, 30, 100}) {
        const int chunk = layout.largest_chunk(num_tokens, num_blocks);
        ASSERT_GE(chunk, 1);
        ASSERT_LE(chunk, num_tokens);
        if (chunk > 1) {
          EXPECT_LE(layout.peak_blocks(num_tokens, chunk), num_blocks);
        }
        if (chunk < num_tokens) {
          EXPECT_GT(layout.peak_blocks(num_tokens, chunk + 1), num_blocks);
        }
        for (const int step : {1, 5, 100}) {
          const auto fits = [&](int n) { return layout.peak_blocks(n, std::min(n, step)) <= num_blocks; };
          int longest = 0;
          while (longest < num_tokens && fits(longest + 1)) ++longest;
          EXPECT_EQ(layout.longest_sequence(num_tokens, step, num_blocks), longest);
        }
      }
    }
  }
}

TEST(KvLayout, IsInvalidWithGroupsThatDoNotFitTogether) {
  EXPECT_FALSE(KvLayout{{}}.is_valid());
  KvLayout layout = full_and_windows(4, 1, 8);
  layout.groups[1].block_size = 8;
  EXPECT_FALSE(layout.is_valid()) << "blocks hold the same number of tokens";
  layout = full_and_windows(4, 1, 0);
  EXPECT_FALSE(layout.is_valid()) << "a window has tokens";
  layout = full_and_windows(4, 1, 8);
  layout.groups[0].window = 8;
  EXPECT_FALSE(layout.is_valid()) << "a group of all tokens has no window";
}

TEST(KvLayout, ADraftModelsKvLiesBehindTheFirstGroupWhichHasNoWindow) {
  KvLayout layout = full_and_windows(4, 5, 8);
  const std::int64_t bytes = layout.block_bytes();
  layout.draft_bytes = 40;
  EXPECT_TRUE(layout.is_valid());
  EXPECT_EQ(layout.draft_offset(), layout.groups.front().num_layers * layout.groups.front().layer_bytes);
  EXPECT_EQ(layout.block_bytes(), std::max(bytes, layout.draft_offset() + 40));
  layout.draft_bytes = 10 * bytes;
  EXPECT_EQ(layout.block_bytes(), layout.draft_offset() + 10 * bytes);
  layout.draft_bytes = -1;
  EXPECT_FALSE(layout.is_valid());
  layout = KvLayout::uniform(4, 8, 2, 64);
  EXPECT_TRUE(layout.is_valid());
  layout.draft_bytes = 40;
  EXPECT_FALSE(layout.is_valid()) << "its blocks do not keep all tokens";
}

TEST(KvGroup, ASlotIsThatOfThePositionInItsBlock) {
  const KvGroup group = KvLayout::uniform(4)[0];
  EXPECT_EQ(group.block_of(11), 2);
  EXPECT_EQ(group.slot(7, 11), 31);
  EXPECT_EQ(KvLayout::uniform(4, 0, 3, 256).block_bytes(), 768);
}

}  // namespace
}  // namespace pagoda

#include "kernels/cuda/attention_plan.hpp"

#include <set>
#include <vector>

#include <gtest/gtest.h>

namespace pagoda::kernels::cuda {
namespace {

AttentionShape decode_shape() {
  AttentionShape shape;
  shape.num_sequences = 64;
  shape.num_tokens = 64;
  shape.max_query_len = 1;
  shape.max_context_len = 4096;
  shape.num_heads = 32;
  shape.num_kv_heads = 8;
  shape.head_dim = 128;
  shape.tensor_cores = true;
  return shape;
}

TEST(AttentionPlan, ADecodeIsSplitIntoPartitionsAndHasNoWholeSequences) {
  const AttentionPlan plan = plan_attention(decode_shape(), kAttentionScratchBytes);
  EXPECT_EQ(plan.group, 4);
  EXPECT_EQ(plan.split_query_len, 1);
  EXPECT_EQ(plan.split_rows, kNarrowRows);
  EXPECT_EQ(plan.split_row_tiles, 1);
  EXPECT_EQ(plan.max_partitions, 8);
  EXPECT_EQ(plan.split_sequences_at_once, 64);
  EXPECT_EQ(plan.whole_tiles, 0);
  EXPECT_GE(plan.split_grid_x * 64 * 8, 132 * 4) << "fills a large GPU";
}

TEST(AttentionPlan, OneSequenceOfLongContextIsSplitAsFarAsItGoes) {
  AttentionShape shape = decode_shape();
  shape.num_sequences = shape.num_tokens = 1;
  shape.max_context_len = 131072;
  const AttentionPlan plan = plan_attention(shape, kAttentionScratchBytes);
  EXPECT_EQ(plan.max_partitions, 256);
  EXPECT_EQ(plan.split_grid_x, 256);
}

TEST(AttentionPlan, BoundsFarAboveTheBatchDoNotMakeTheGridHuge) {
  AttentionShape shape = decode_shape();
  shape.num_sequences = shape.num_tokens = 256;
  shape.max_context_len = 131072;
  const AttentionPlan plan = plan_attention(shape, kAttentionScratchBytes);
  EXPECT_LE(plan.split_grid_x * plan.split_sequences_at_once * shape.num_kv_heads, 2 * kSplitBlocks);
}

TEST(AttentionPlan, ContextsOfOnePartitionNeedNoScratch) {
  AttentionShape shape = decode_shape();
  shape.max_context_len = kPartitionTokens;
  const AttentionPlan plan = plan_attention(shape, 0);
  EXPECT_EQ(plan.max_partitions, 1);
  EXPECT_EQ(plan.split_query_len, 1);
  EXPECT_EQ(plan.split_sequences_at_once, 64);
  EXPECT_EQ(plan.scratch_bytes(shape.num_heads, shape.head_dim), 0U);
}

TEST(AttentionPlan, BatchesThatNeedMoreScratchThanThereMayBeAreSliced) {
  AttentionShape shape = decode_shape();
  shape.num_sequences = shape.num_tokens = 512;
  shape.max_context_len = 32768;
  const AttentionPlan plan = plan_attention(shape, kAttentionScratchBytes);
  EXPECT_GT(plan.split_sequences_at_once, 0);
  EXPECT_LT(plan.split_sequences_at_once, 512);
  EXPECT_LE(plan.scratch_bytes(shape.num_heads, shape.head_dim), kAttentionScratchBytes);
}

TEST(AttentionPlan, WithoutScratchForOneSequenceNothingIsSplit) {
  const AttentionPlan plan = plan_attention(decode_shape(), 1000);
  EXPECT_EQ(plan.split_query_len, 0);
  EXPECT_EQ(plan.scratch_bytes(32, 128), 0U);
  EXPECT_GE(plan.whole_tiles, 64);
}

TEST(AttentionPlan, SequencesAreSplitWhileTheirRowsFitOneTile) {
  AttentionShape shape = decode_shape();
  shape.max_query_len = 2048;
  shape.num_tokens = 2048 + 63;
  for (const auto& [group, expected] : {std::pair{1, 16}, {2, 8}, {4, 4}, {5, 3}, {8, 2}, {16, 1}, {71, 1}}) {
    shape.num_heads = shape.num_kv_heads * group;
    const AttentionPlan plan = plan_attention(shape, kAttentionScratchBytes);
    EXPECT_EQ(plan.split_query_len, expected) << group;
    EXPECT_EQ(plan.split_rows, group <= kNarrowRows ? kNarrowRows : wide_rows(128)) << group;
    EXPECT_EQ(plan.split_row_tiles, 1) << group;
    EXPECT_EQ(plan.whole_tiles, shape.num_tokens * group / wide_rows(128) + 64) << group;
  }
}

TEST(AttentionPlan, AWindowBoundsThePartitions) {
  EXPECT_EQ(max_partitions(4096, 1, 0), 8);
  EXPECT_EQ(max_partitions(1, 1, 0), 1);
  EXPECT_EQ(max_partitions(4096, 1, 1), 1);
  EXPECT_EQ(max_partitions(4096, 1, 2), 2);
  EXPECT_EQ(max_partitions(4096, 1, kPartitionTokens), 2);
  EXPECT_EQ(max_partitions(4096, 1, kPartitionTokens + 1), 2);
  EXPECT_EQ(max_partitions(4096, 1, kPartitionTokens + 2), 3);
  EXPECT_EQ(max_partitions(600, 1, 100000), 2);

  // Exhaustively: no context has rows that see more.
  constexpr std::int32_t kBound = 2000;
  for (const std::int32_t window : {1, 2, 7, 511, 512, 513, 514, 1024, 1025, 1026, 3000}) {
    for (const std::int32_t rows : {1, 2, 16}) {
      for (std::int32_t context = rows; context <= kBound; ++context) {
        const std::int32_t first = first_seen(context - rows, window) / kPartitionTokens;
        const std::int32_t end = (context - 1) / kPartitionTokens + 1;
        ASSERT_LE(end - first, max_partitions(kBound, rows, window)) << window << " " << rows << " " << context;
      }
    }
  }
}

TEST(AttentionPlan, TilesOfABatchAreNumberedWithoutOverlapAndWithinTheGrid) {
  const std::vector<std::int32_t> lengths = {1, 0, 0, 300, 17, 5, 128, 0, 1, 64};
  for (const std::int32_t group : {1, 3, 4, 7, 71}) {
    const std::int32_t rows = wide_rows(128);
    std::int64_t start = 0;
    std::int64_t end_of_last = 0;
    for (std::size_t s = 0; s < lengths.size(); ++s) {
      const std::int64_t first = first_whole_tile(start, static_cast<std::int64_t>(s), group, rows);
      EXPECT_GE(first, end_of_last) << "sequence " << s;
      end_of_last = first + divide_up(std::int64_t{lengths[s]} * group, rows);
      start += lengths[s];
    }
    AttentionShape shape = decode_shape();
    shape.num_sequences = static_cast<std::int64_t>(lengths.size());
    shape.num_tokens = start;
    shape.max_query_len = 300;
    shape.num_heads = shape.num_kv_heads * group;
    EXPECT_LE(end_of_last, plan_attention(shape, kAttentionScratchBytes).whole_tiles);
  }
}

TEST(AttentionPlan, FirstSeenIsTheStartOfTheWindow) {
  EXPECT_EQ(first_seen(100, 0), 0);
  EXPECT_EQ(first_seen(100, 1), 100);
  EXPECT_EQ(first_seen(100, 100), 1);
  EXPECT_EQ(first_seen(100, 101), 0);
  EXPECT_EQ(first_seen(100, 1000), 0);
}

TEST(AttentionPlan, SharedMemoryFitsEveryGpuAndPartitionsAreWholeTiles) {
  for (const std::int32_t dim : {64, 128, 256}) {
    EXPECT_EQ(padded_head_dim(dim), dim);
    EXPECT_EQ(padded_head_dim(dim - 8), dim);
    EXPECT_EQ(kPartitionTokens % tile_tokens(dim), 0);
    for (const std::size_t stored_bytes : {1, 2}) {
      EXPECT_LE(tiles_shared_bytes(dim, kNarrowRows, narrow_stages(dim), stored_bytes, true), kMostSharedBytes);
      EXPECT_LE(tiles_shared_bytes(dim, wide_rows(dim), kWideStages, stored_bytes, false), kMostSharedBytes);
    }
  }
  EXPECT_EQ(kPartitionTokens % kPlainTile, 0);
}

TEST(AttentionPlan, ThePlainKernelTakesFewerRowsOfLargerHeadsUntilNoneFits) {
  EXPECT_EQ(plain_rows(128), kNarrowRows);
  EXPECT_LT(plain_rows(2000), kNarrowRows);
  EXPECT_GT(plain_rows(2000), 0);
  EXPECT_EQ(plain_rows(100000), 0);
  for (std::int64_t dim = 1; dim < 12000; dim += 97) {
    if (plain_rows(dim) > 0) {
      EXPECT_LE(plain_shared_bytes(dim, plain_rows(dim)), kMostSharedBytes);
    }
  }
}

}  // namespace
}  // namespace pagoda::kernels::cuda

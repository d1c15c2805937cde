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
  EXPECT_GE(plan.split_grid_x * 64 * 8, 132 * 3) << "fills a large GPU";
  EXPECT_GE(plan.split_grid_x * plan.split_run, plan.max_partitions);
}

TEST(AttentionPlan, OneSequenceOfLongContextIsSplitAsFarAsItGoes) {
  AttentionShape shape = decode_shape();
  shape.num_sequences = shape.num_tokens = 1;
  shape.max_context_len = 131072;
  const AttentionPlan plan = plan_attention(shape, kAttentionScratchBytes);
  EXPECT_EQ(plan.max_partitions, 256);
  EXPECT_GE(plan.split_grid_x * shape.num_kv_heads, 132 * 2);
  EXPECT_GE(plan.split_grid_x * plan.split_run, plan.max_partitions);

  shape.max_context_len = 1024;
  const AttentionPlan shorter = plan_attention(shape, kAttentionScratchBytes);
  EXPECT_EQ(shorter.max_partitions, 8);
  EXPECT_EQ(shorter.split_grid_x, 8);
  EXPECT_EQ(shorter.split_run, 1);
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
  shape.max_context_len = 1 << partition_shift(1);
  const AttentionPlan plan = plan_attention(shape, 0);
  EXPECT_EQ(plan.max_partitions, 1);
  EXPECT_EQ(plan.split_query_len, 1);
  EXPECT_EQ(plan.split_sequences_at_once, 64);
  EXPECT_EQ(plan.scratch_bytes, 0U);
}

TEST(AttentionPlan, BatchesThatNeedMoreScratchThanThereMayBeAreSliced) {
  AttentionShape shape = decode_shape();
  shape.num_sequences = shape.num_tokens = 512;
  shape.max_context_len = 32768;
  const AttentionPlan plan = plan_attention(shape, kAttentionScratchBytes);
  EXPECT_GT(plan.split_sequences_at_once, 0);
  EXPECT_LT(plan.split_sequences_at_once, 512);
  EXPECT_LE(plan.scratch_bytes, kAttentionScratchBytes);
}

TEST(AttentionPlan, WithoutScratchForOneSequenceNothingIsSplit) {
  const AttentionPlan plan = plan_attention(decode_shape(), 1000);
  EXPECT_EQ(plan.split_query_len, 0);
  EXPECT_EQ(plan.scratch_bytes, 0U);
  EXPECT_GE(plan.whole_tiles, 64);
}

TEST(AttentionPlan, SequencesAreSplitWhileTheirRowsFitOneTile) {
  AttentionShape shape = decode_shape();
  shape.max_query_len = 2048;
  shape.num_tokens = 2048 + 63;
  for (const auto& [group, expected] : {std::pair{1, 16}, {2, 8}, {4, 4}, {5, 3}, {8, 2}, {16, 1}, {71, 0}}) {
    shape.num_heads = shape.num_kv_heads * group;
    const AttentionPlan plan = plan_attention(shape, kAttentionScratchBytes);
    EXPECT_EQ(plan.split_query_len, expected) << group;
    EXPECT_EQ(plan.split_rows, expected > 0 ? kNarrowRows : 0) << group;
    EXPECT_EQ(plan.split_row_tiles, expected > 0 ? 1 : 0) << group;
    EXPECT_EQ(plan.whole_tiles, shape.num_tokens * group / wide_rows(128) + 64) << group;
  }
}

TEST(AttentionPlan, AWindowBoundsThePartitions) {
  const std::int32_t tokens = 1 << partition_shift(kShortContext);
  EXPECT_EQ(max_partitions(kShortContext, 1, 0), kShortContext / tokens);
  EXPECT_EQ(max_partitions(1, 1, 0), 1);
  EXPECT_EQ(max_partitions(kShortContext, 1, 1), 1);
  EXPECT_EQ(max_partitions(kShortContext, 1, 2), 2);
  EXPECT_EQ(max_partitions(kShortContext, 1, tokens), 2);
  EXPECT_EQ(max_partitions(kShortContext, 1, tokens + 1), 2);
  EXPECT_EQ(max_partitions(kShortContext, 1, tokens + 2), 3);
  EXPECT_EQ(max_partitions(tokens + 1, 1, 100000), 2);

  // Tries all contexts: none has rows that see more partitions.
  for (const std::int32_t bound : {500, 1500, 4000}) {
    for (const std::int32_t window : {0, 1, 2, 7, 127, 128, 129, 130, 511, 512, 513, 514, 1024, 1025, 1026, 3000}) {
      for (const std::int32_t rows : {1, 2, 16}) {
        for (std::int32_t context = rows; context <= bound; ++context) {
          const std::int32_t shift = partition_shift(context);
          const std::int32_t first = first_seen(context - rows, window, 0) >> shift;
          const std::int32_t end = ((context - 1) >> shift) + 1;
          ASSERT_LE(end - first, max_partitions(bound, rows, window)) << window << " " << rows << " " << context;
        }
      }
    }
  }
}

TEST(AttentionPlan, FewQueryRowsOfALongContextAreSharedAmongThreadBlocks) {
  AttentionShape shape = decode_shape();
  shape.num_sequences = 1;
  shape.num_tokens = shape.max_query_len = 512;
  shape.max_context_len = 8192;
  const AttentionPlan plan = plan_attention(shape, kAttentionScratchBytes);
  EXPECT_EQ(plan.whole_shares, 2);
  EXPECT_GT(plan.scratch_bytes, 0U);
  EXPECT_LE(plan.scratch_bytes, kAttentionScratchBytes);
  EXPECT_EQ(plan_attention(shape, 1000).whole_shares, 1) << "without scratch";

  shape.max_context_len = kMinShareTokens;
  EXPECT_EQ(plan_attention(shape, kAttentionScratchBytes).whole_shares, 1);
  shape.num_tokens = shape.max_query_len = shape.max_context_len = 4096;
  EXPECT_EQ(plan_attention(shape, kAttentionScratchBytes).whole_shares, 1);
  shape.tensor_cores = false;
  shape.num_tokens = shape.max_query_len = 32;
  EXPECT_EQ(plan_attention(shape, kAttentionScratchBytes).whole_shares, 1);
}

TEST(AttentionPlan, ADividerGivesTheQuotientOfAnyNumber) {
  for (const std::int32_t divisor : {1, 2, 3, 5, 7, 16, 48, 71, 127, 128, 1000003, 2147483647}) {
    const Divider by = divider(divisor);
    for (const std::int32_t n : {0, 1, 2, 6, 7, 15, 16, 127, 128, 4095, 999999999, 2147483646, 2147483647}) {
      EXPECT_EQ(by.quotient(n), n / divisor) << n << " / " << divisor;
      EXPECT_EQ(by.remainder(n), n % divisor) << n << " / " << divisor;
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

TEST(AttentionPlan, FirstSeenIsTheStartOfTheWindowOrTheFirstPosition) {
  EXPECT_EQ(first_seen(100, 0, 0), 0);
  EXPECT_EQ(first_seen(100, 1, 0), 100);
  EXPECT_EQ(first_seen(100, 100, 0), 1);
  EXPECT_EQ(first_seen(100, 101, 0), 0);
  EXPECT_EQ(first_seen(100, 1000, 0), 0);
  EXPECT_EQ(first_seen(100, 0, 7), 7);
  EXPECT_EQ(first_seen(100, 95, 7), 7);
  EXPECT_EQ(first_seen(100, 90, 7), 11);
  EXPECT_EQ(first_seen(5, 0, 7), 5) << "each row sees its own position";
}

TEST(AttentionPlan, SharedMemoryFitsEveryGpuAndPartitionsAreWholeTiles) {
  for (const std::int32_t dim : {64, 128, 256}) {
    EXPECT_EQ(padded_head_dim(dim), dim);
    EXPECT_EQ(padded_head_dim(dim - 8), dim);
    for (const std::size_t stored_bytes : {1, 2}) {
      for (std::int32_t rows = 1; rows <= kNarrowRows; ++rows) {
        EXPECT_LE(narrow_shared_bytes(dim, stored_bytes, rows), kMaxSharedBytes) << dim << " " << rows;
      }
      EXPECT_LE(wide_shared_bytes(dim, stored_bytes), kMaxSharedBytes);
    }
  }
  const std::int32_t least = 1 << partition_shift(1);
  EXPECT_EQ(least % narrow_tile_tokens(1), 0);
  EXPECT_EQ(least % narrow_tile_tokens(2), 0);
  EXPECT_EQ(least % kPlainTile, 0);
}

TEST(AttentionPlan, ThePlainKernelTakesFewerRowsOfLargerHeadsUntilNoneFits) {
  EXPECT_EQ(plain_rows(128), kNarrowRows);
  EXPECT_LT(plain_rows(2000), kNarrowRows);
  EXPECT_GT(plain_rows(2000), 0);
  EXPECT_EQ(plain_rows(100000), 0);
  for (std::int64_t dim = 1; dim < 12000; dim += 97) {
    if (plain_rows(dim) > 0) {
      EXPECT_LE(plain_shared_bytes(dim, plain_rows(dim)), kMaxSharedBytes);
    }
  }
}

}  // namespace
}  // namespace pagoda::kernels::cuda

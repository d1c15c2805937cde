#include "engine/execution/decode_batches.hpp"

#include <algorithm>
#include <set>
#include <vector>

#include <gtest/gtest.h>

namespace pagoda::execution {
namespace {

TEST(DecodeBatches, RowsAreRoundedUpToPowersOfTwoThenToMultiplesOfEight) {
  const DecodeBatches batches({.max_num_seqs = 20, .max_model_len = 100});
  std::vector<std::int32_t> rounded;
  for (std::int32_t rows = 1; rows <= 20; ++rows) rounded.push_back(batches.around(rows, rows, 1, 1)->num_sequences);
  EXPECT_EQ(rounded,
            (std::vector<std::int32_t>{1, 2, 4, 4, 8, 8, 8, 8, 16, 16, 16, 16, 16, 16, 16, 16, 20, 20, 20, 20}));
}

TEST(DecodeBatches, ManyRowsAreRoundedUpByAnEighthAtMost) {
  const DecodeBatches batches({.max_num_seqs = 1024, .max_model_len = 100});
  std::set<std::int32_t> sizes;
  for (std::int32_t rows = 1; rows <= 1024; ++rows) {
    const std::int32_t rounded = batches.around(rows, rows, 1, 1)->num_sequences;
    sizes.insert(rounded);
    if (rows > 8) {
      EXPECT_LT(rounded - rows, std::max(8, rows / 8)) << rows;
    }
  }
  EXPECT_LT(sizes.size(), 50U);
}

TEST(DecodeBatches, ContextsAreRoundedUpInLargeStepsToTheLongestThereMayBe) {
  const DecodeBatches batches({.max_num_seqs = 1, .max_model_len = 20000});
  const auto rounded = [](const DecodeBatches& from, std::int32_t len) {
    return from.around(1, 1, 1, len)->max_context_len;
  };
  EXPECT_EQ(rounded(batches, 1), 2048);
  EXPECT_EQ(rounded(batches, 2048), 2048);
  EXPECT_EQ(rounded(batches, 2049), 8192);
  EXPECT_EQ(rounded(batches, 8193), 20000);
  EXPECT_EQ(rounded(DecodeBatches({.max_num_seqs = 1, .max_model_len = 100}), 7), 100);
}

TEST(DecodeBatches, WithDraftsHaveAPowerOfTwoOfTokensForEachSequence) {
  const DecodeBatches batches({.max_num_seqs = 6, .max_drafts = 5, .max_draft_tokens = 50, .max_model_len = 100});
  EXPECT_EQ(batches.around(2, 2, 1, 50), (DecodeBatch{2, 1, 100}));
  EXPECT_EQ(batches.around(1, 2, 2, 50), (DecodeBatch{1, 2, 100}));
  EXPECT_EQ(batches.around(1, 6, 6, 50), (DecodeBatch{1, 8, 100}));
  EXPECT_EQ(batches.around(3, 4, 2, 50), (DecodeBatch{4, 2, 100}));
  EXPECT_EQ(batches.around(3, 9, 6, 50), (DecodeBatch{4, 4, 100}));
  EXPECT_EQ(batches.around(5, 20, 6, 50), (DecodeBatch{6, 4, 100}));
  EXPECT_EQ(batches.around(6, 36, 6, 50), (DecodeBatch{6, 8, 100}));
  EXPECT_EQ(batches.max_query_len({2, 1, 100}), 1);
  EXPECT_EQ(batches.max_query_len({1, 2, 100}), 2);
  EXPECT_EQ(batches.max_query_len({4, 2, 100}), 6);
}

TEST(DecodeBatches, WithMoreDraftsThanThereMayBeAreNotRecorded) {
  const DecodeLimits limits{.max_num_seqs = 512, .max_drafts = 5, .max_draft_tokens = 1024, .max_model_len = 100};
  const DecodeBatches batches(limits);
  constexpr std::int32_t kMost = DecodeBatches::kMaxDraftTokens;
  EXPECT_EQ(batches.around(64, kMost, 6, 50), (DecodeBatch{64, 2, 100}));
  EXPECT_FALSE(batches.around(64, kMost + 1, 6, 50).has_value());
  EXPECT_FALSE(batches.around(2, 8, 7, 50).has_value());
  EXPECT_EQ(batches.around(512, 512, 1, 50), (DecodeBatch{512, 1, 100}));
  EXPECT_FALSE(DecodeBatches({.max_num_seqs = 1, .max_draft_tokens = 8, .max_model_len = 100}).around(1, 2, 2, 50));
}

TEST(DecodeBatches, AllAreDifferentAndEveryStepIsRoundedToOneOfThem) {
  for (const std::int32_t max_num_seqs : {1, 2, 3, 8, 9, 64, 100}) {
    const std::int32_t max_draft_tokens = 3 * max_num_seqs;
    const DecodeBatches batches(
        {.max_num_seqs = max_num_seqs, .max_drafts = 5, .max_draft_tokens = max_draft_tokens, .max_model_len = 9000});
    const auto all = batches.all();
    std::set<std::uint64_t> keys;
    for (const DecodeBatch& batch : all) EXPECT_TRUE(keys.insert(batch.key()).second);
    std::set<std::uint64_t> used;
    for (std::int32_t rows = 1; rows <= max_num_seqs; ++rows) {
      for (std::int32_t tokens = rows; tokens <= 6 * rows; ++tokens) {
        for (const std::int32_t context : {1, 2048, 2049, 9000}) {
          const auto batch = batches.around(rows, tokens, tokens == rows ? 1 : 6, context);
          if (!batch) {
            EXPECT_GT(4 * tokens, std::min(max_draft_tokens, 128));
            continue;
          }
          EXPECT_GE(batch->num_sequences, rows);
          EXPECT_LE(batch->num_sequences, max_num_seqs);
          EXPECT_GE(batch->num_tokens(), tokens);
          EXPECT_EQ(batch->has_drafts(), tokens > rows);
          EXPECT_LE(batch->num_tokens(), tokens == rows ? max_num_seqs : max_draft_tokens);
          EXPECT_GE(batch->max_context_len, context);
          EXPECT_TRUE(keys.contains(batch->key()));
          used.insert(batch->key());
        }
      }
    }
    EXPECT_EQ(used, keys);
  }
}

}  // namespace
}  // namespace pagoda::execution

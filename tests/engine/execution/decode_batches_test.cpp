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
  for (std::int32_t rows = 1; rows <= 20; ++rows) rounded.push_back(batches.around(rows, 1, 1)->num_tokens);
  EXPECT_EQ(rounded,
            (std::vector<std::int32_t>{1, 2, 4, 4, 8, 8, 8, 8, 16, 16, 16, 16, 16, 16, 16, 16, 20, 20, 20, 20}));
}

TEST(DecodeBatches, ManyRowsAreRoundedUpByAnEighthAtMost) {
  const DecodeBatches batches({.max_num_seqs = 1024, .max_model_len = 100});
  std::set<std::int32_t> sizes;
  for (std::int32_t rows = 1; rows <= 1024; ++rows) {
    const std::int32_t rounded = batches.around(rows, 1, 1)->num_tokens;
    sizes.insert(rounded);
    if (rows > 8) {
      EXPECT_LT(rounded - rows, std::max(8, rows / 8)) << rows;
    }
  }
  EXPECT_LT(sizes.size(), 50U);
}

TEST(DecodeBatches, ContextsAreRoundedUpInLargeStepsToTheLongestThereMayBe) {
  const DecodeBatches batches({.max_num_seqs = 1, .max_model_len = 20000});
  EXPECT_EQ(batches.around(1, 1, 1)->max_context_len, 2048);
  EXPECT_EQ(batches.around(1, 1, 2048)->max_context_len, 2048);
  EXPECT_EQ(batches.around(1, 1, 2049)->max_context_len, 8192);
  EXPECT_EQ(batches.around(1, 1, 8193)->max_context_len, 20000);
  EXPECT_EQ(DecodeBatches({.max_num_seqs = 1, .max_model_len = 100}).around(1, 1, 7)->max_context_len, 100);
}

TEST(DecodeBatches, WithDraftsHaveRoomForAsManyAsASequenceMayHave) {
  const DecodeBatches batches({.max_num_seqs = 4, .max_drafts = 5, .max_draft_tokens = 20, .max_model_len = 100});
  EXPECT_EQ(batches.around(2, 2, 50), (DecodeBatch{2, 6, 100}));
  EXPECT_EQ(batches.around(2, 1, 50), (DecodeBatch{2, 1, 100}));
  EXPECT_EQ(batches.around(5, 2, 50), (DecodeBatch{8, 6, 100}));
  EXPECT_EQ(batches.around(17, 6, 50), (DecodeBatch{20, 6, 100}));
  EXPECT_EQ(batches.around(20, 6, 50), (DecodeBatch{20, 6, 100}));
  EXPECT_FALSE(batches.around(21, 6, 50).has_value());
  EXPECT_FALSE(batches.around(8, 7, 50).has_value());
}

TEST(DecodeBatches, WithManyTokensOfDraftsAreNotRecorded) {
  const DecodeBatches batches({.max_num_seqs = 512, .max_drafts = 5, .max_draft_tokens = 1024, .max_model_len = 100});
  constexpr std::int32_t kMost = DecodeBatches::kMaxDraftTokens;
  EXPECT_EQ(batches.around(kMost, 6, 50), (DecodeBatch{kMost, 6, 100}));
  EXPECT_FALSE(batches.around(kMost + 1, 6, 50).has_value());
  EXPECT_EQ(batches.around(512, 1, 50), (DecodeBatch{512, 1, 100}));
}

TEST(DecodeBatches, WithoutRoomForADraftHaveNone) {
  for (const DecodeLimits& limits :
       {DecodeLimits{.max_num_seqs = 1, .max_draft_tokens = 8, .max_model_len = 100},
        DecodeLimits{.max_num_seqs = 1, .max_drafts = 5, .max_draft_tokens = 1, .max_model_len = 100}}) {
    const DecodeBatches batches(limits);
    EXPECT_FALSE(batches.around(2, 2, 50).has_value());
    EXPECT_EQ(batches.all(), (std::vector{DecodeBatch{1, 1, 100}}));
  }
}

TEST(DecodeBatches, AllAreDifferentAndEveryStepIsRoundedToOneOfThem) {
  for (const std::int32_t max_num_seqs : {1, 2, 3, 8, 9, 64, 100}) {
    const std::int32_t max_draft_tokens = 3 * max_num_seqs;
    const DecodeBatches batches(
        {.max_num_seqs = max_num_seqs, .max_drafts = 5, .max_draft_tokens = max_draft_tokens, .max_model_len = 9000});
    const auto all = batches.all();
    std::set<std::uint64_t> keys;
    for (const DecodeBatch& batch : all) EXPECT_TRUE(keys.insert(batch.key()).second);
    const auto expect_room = [&](std::int32_t num_tokens, std::int32_t max_query_len, std::int32_t most) {
      for (const std::int32_t context : {1, 2048, 2049, 9000}) {
        const auto batch = batches.around(num_tokens, max_query_len, context);
        ASSERT_TRUE(batch.has_value());
        EXPECT_GE(batch->num_tokens, num_tokens);
        EXPECT_LE(batch->num_tokens, most);
        EXPECT_LT(batch->num_tokens, 2 * num_tokens);
        EXPECT_GE(batch->max_query_len, max_query_len);
        EXPECT_GE(batch->max_context_len, context);
        EXPECT_TRUE(keys.contains(batch->key()));
      }
    };
    for (std::int32_t tokens = 1; tokens <= max_num_seqs; ++tokens) expect_room(tokens, 1, max_num_seqs);
    for (std::int32_t tokens = 2; tokens <= std::min(max_draft_tokens, 256); ++tokens) {
      for (const std::int32_t query_len : {2, 6}) expect_room(tokens, query_len, max_draft_tokens);
    }
  }
}

}  // namespace
}  // namespace pagoda::execution

#include "engine/execution/decode_batches.hpp"

#include <algorithm>
#include <set>
#include <vector>

#include <gtest/gtest.h>

namespace pagoda::execution {
namespace {

TEST(DecodeBatches, RowsAreRoundedUpToPowersOfTwoThenToMultiplesOfEight) {
  const DecodeBatches batches(20, 100);
  std::vector<std::int32_t> rounded;
  for (std::int32_t rows = 1; rows <= 20; ++rows) rounded.push_back(batches.around(rows, 1).num_rows);
  EXPECT_EQ(rounded,
            (std::vector<std::int32_t>{1, 2, 4, 4, 8, 8, 8, 8, 16, 16, 16, 16, 16, 16, 16, 16, 20, 20, 20, 20}));
}

TEST(DecodeBatches, ManyRowsAreRoundedUpByAnEighthAtMost) {
  const DecodeBatches batches(1024, 100);
  std::set<std::int32_t> sizes;
  for (std::int32_t rows = 1; rows <= 1024; ++rows) {
    const std::int32_t rounded = batches.around(rows, 1).num_rows;
    sizes.insert(rounded);
    if (rows > 8) {
      EXPECT_LT(rounded - rows, std::max(8, rows / 8)) << rows;
    }
  }
  EXPECT_LT(sizes.size(), 50U);
}

TEST(DecodeBatches, ContextsAreRoundedUpInLargeStepsToTheLongestThereMayBe) {
  const DecodeBatches batches(1, 20000);
  EXPECT_EQ(batches.around(1, 1).max_context_len, 2048);
  EXPECT_EQ(batches.around(1, 2048).max_context_len, 2048);
  EXPECT_EQ(batches.around(1, 2049).max_context_len, 8192);
  EXPECT_EQ(batches.around(1, 8193).max_context_len, 20000);
  EXPECT_EQ(DecodeBatches(1, 100).around(1, 7).max_context_len, 100);
}

TEST(DecodeBatches, AllAreDifferentAndEveryStepIsRoundedToOneOfThem) {
  for (const std::int32_t max_num_seqs : {1, 2, 3, 8, 9, 64, 100}) {
    const DecodeBatches batches(max_num_seqs, 9000);
    const auto all = batches.all();
    std::set<std::uint64_t> keys;
    for (const DecodeBatch& batch : all) EXPECT_TRUE(keys.insert(batch.key()).second);
    for (std::int32_t rows = 1; rows <= max_num_seqs; ++rows) {
      for (const std::int32_t context : {1, 2048, 2049, 9000}) {
        const DecodeBatch batch = batches.around(rows, context);
        EXPECT_GE(batch.num_rows, rows);
        EXPECT_LE(batch.num_rows, max_num_seqs);
        EXPECT_GE(batch.max_context_len, context);
        EXPECT_TRUE(keys.contains(batch.key()));
      }
    }
  }
}

}  // namespace
}  // namespace pagoda::execution

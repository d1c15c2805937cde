#include "kernels/cuda/block_runs.hpp"

#include <tuple>
#include <vector>

#include <gtest/gtest.h>

namespace pagoda::kernels::cuda {
namespace {

using Runs = std::vector<std::tuple<std::int64_t, std::int64_t, std::int64_t>>;

Runs runs_of(const std::vector<std::int32_t>& from, const std::vector<std::int32_t>& to) {
  Runs runs;
  for_each_block_run(from, to, [&](std::int64_t f, std::int64_t t, std::int64_t n) { runs.emplace_back(f, t, n); });
  return runs;
}

TEST(BlockRuns, JoinsMovesWhoseSourcesAndTargetsAreNeighbours) {
  EXPECT_EQ(runs_of({3, 4, 9}, {7, 8, 1}), (Runs{{3, 7, 2}, {9, 1, 1}}));
  EXPECT_EQ(runs_of({}, {}), Runs{});
  EXPECT_EQ(runs_of({5}, {5}), (Runs{{5, 5, 1}}));
  EXPECT_EQ(runs_of({1, 2, 3}, {10, 12, 13}), (Runs{{1, 10, 1}, {2, 12, 2}}));
}

TEST(BlockRuns, NeverJoinsARunThatWouldOverlapItself) {
  EXPECT_EQ(runs_of({0, 1, 2}, {1, 2, 3}), (Runs{{0, 1, 1}, {1, 2, 1}, {2, 3, 1}}));
  EXPECT_EQ(runs_of({4, 5, 6, 7}, {6, 7, 8, 9}), (Runs{{4, 6, 2}, {6, 8, 2}}));
  EXPECT_EQ(runs_of({6, 7, 8}, {4, 5, 6}), (Runs{{6, 4, 2}, {8, 6, 1}}));
}

std::vector<std::size_t> batch_ends(const std::vector<std::int32_t>& from, const std::vector<std::int32_t>& to,
                                    bool one_pool) {
  std::vector<std::size_t> ends;
  for_each_unordered_batch(from, to, one_pool, [&](std::size_t first, std::size_t end) {
    EXPECT_EQ(first, ends.empty() ? 0 : ends.back());
    ends.push_back(end);
  });
  return ends;
}

TEST(UnorderedBatches, EndWhereAMoveDependsOnOneBeforeIt) {
  using Ends = std::vector<std::size_t>;
  EXPECT_EQ(batch_ends({}, {}, true), Ends{});
  EXPECT_EQ(batch_ends({1, 2, 3}, {4, 5, 6}, true), Ends{3});
  EXPECT_EQ(batch_ends({1, 1}, {4, 5}, true), Ends{2}) << "both only read block 1";
  EXPECT_EQ(batch_ends({1, 4}, {4, 5}, true), (Ends{1, 2})) << "block 4 is read after it was written";
  EXPECT_EQ(batch_ends({1, 2}, {3, 1}, true), (Ends{1, 2})) << "block 1 is written after it was read";
  EXPECT_EQ(batch_ends({1, 2}, {3, 3}, true), (Ends{1, 2})) << "block 3 is written twice";
}

TEST(UnorderedBatches, OfTwoPoolsEndOnlyWhereABlockIsWrittenTwice) {
  using Ends = std::vector<std::size_t>;
  EXPECT_EQ(batch_ends({1, 4, 2}, {4, 1, 2}, false), Ends{3});
  EXPECT_EQ(batch_ends({1, 2, 3}, {3, 3, 4}, false), (Ends{1, 3}));
}

}  // namespace
}  // namespace pagoda::kernels::cuda

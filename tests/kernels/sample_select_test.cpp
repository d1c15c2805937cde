#include "kernels/cpu/sample_select.hpp"

#include <algorithm>
#include <numeric>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "kernels/cpu/sample_passes.hpp"
#include "tests/kernels/sample_batch.hpp"

namespace pagoda::kernels {
namespace {

using test::kMinusInf;
using test::random_logits;

std::vector<float> block_maxima_of(const std::vector<float>& logits) {
  std::vector<float> maxima(sample_blocks(static_cast<std::int64_t>(logits.size())));
  sample_passes().block_maxima(logits.data(), static_cast<std::int64_t>(logits.size()), maxima.data());
  return maxima;
}

Candidates collect(const std::vector<float>& logits, float bound) {
  Candidates out;
  collect_at_least(logits.data(), static_cast<std::int64_t>(logits.size()), block_maxima_of(logits), bound, out);
  return out;
}

std::vector<std::int32_t> best_by_sorting(const std::vector<float>& logits, std::size_t k) {
  std::vector<std::int32_t> order(logits.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](std::int32_t a, std::int32_t b) { return logits[a] > logits[b]; });
  order.resize(k);
  std::sort(order.begin(), order.end());
  return order;
}

TEST(OrderedKey, HasTheOrderOfTheFloats) {
  const std::vector<float> ascending{kMinusInf, -1e30F, -2.0F, -1.5F, -1e-40F, 0.0F, 1e-40F, 1.0F, 3e38F, -kMinusInf};
  for (std::size_t i = 1; i < ascending.size(); ++i) {
    EXPECT_LT(ordered_key(ascending[i - 1]), ordered_key(ascending[i])) << ascending[i];
  }
  EXPECT_EQ(ordered_key(-0.0F), ordered_key(0.0F));
}

TEST(KeepTopK, KeepsWhatSortingKeeps) {
  std::mt19937 random(1);
  for (const float grid : {0.0F, 0.5F}) {
    for (const std::int64_t vocab : {1, 300, 5000}) {
      const auto logits = random_logits(random, vocab, 3.0F, grid);
      for (const std::int64_t k : {1, 2, 9, 10, 11, 299, 4999}) {
        if (k > vocab) continue;
        const float bound = top_k_bound(logits.data(), vocab, block_maxima_of(logits), k);
        Candidates candidates = collect(logits, bound);
        EXPECT_GE(candidates.size(), k);
        keep_top_k(candidates, k);
        EXPECT_EQ(candidates.ids, best_by_sorting(logits, static_cast<std::size_t>(k))) << vocab << " top " << k;
      }
    }
  }
}

TEST(KeepTopK, ABoundNearTheKthLogitLeavesFewCandidates) {
  std::mt19937 random(2);
  const auto logits = random_logits(random, 152000, 2.0F);
  const float bound = top_k_bound(logits.data(), 152000, block_maxima_of(logits), 40);
  EXPECT_LT(collect(logits, bound).size(), 80);
}

TEST(KeepTopP, KeepsTheShortestPrefixThatReachesTheMass) {
  std::mt19937 random(3);
  for (const float grid : {0.0F, 0.25F}) {
    const auto logits = random_logits(random, 3000, 2.0F, grid);
    Candidates all = collect(logits, -1e30F);
    ASSERT_EQ(all.size(), 3000);
    for (const float x : logits) all.weights.push_back(std::exp(x));
    const double total = std::accumulate(all.weights.begin(), all.weights.end(), 0.0);
    for (const double part : {1e-9, 0.01, 0.5, 0.9, 0.999999}) {
      Candidates kept = all;
      keep_top_p(kept, part * total);
      EXPECT_EQ(kept.ids, best_by_sorting(logits, kept.ids.size())) << "a prefix of the descending order";
      const double mass = std::accumulate(kept.weights.begin(), kept.weights.end(), 0.0);
      const double lightest = static_cast<double>(*std::min_element(kept.weights.begin(), kept.weights.end()));
      EXPECT_GE(mass, part * total * (1 - 1e-12));
      EXPECT_LT(mass - lightest, part * total * (1 + 1e-12));
    }
  }
}

TEST(KeepTopP, KeepsEverythingWhenTheMassIsNotReached) {
  Candidates candidates{{3, 5, 8}, {1.0F, -2.0F, 0.5F}, {0.5F, 0.25F, 0.125F}};
  keep_top_p(candidates, 10.0);
  EXPECT_THAT(candidates.ids, ::testing::ElementsAre(3, 5, 8));
}

TEST(KeepTopP, TakesTheLowerIdsAmongEquals) {
  Candidates candidates{{3, 5, 8, 9}, {1.0F, 1.0F, 1.0F, 1.0F}, {1.0F, 1.0F, 1.0F, 1.0F}};
  keep_top_p(candidates, 1.5);
  EXPECT_THAT(candidates.ids, ::testing::ElementsAre(3, 5));
}

}  // namespace
}  // namespace pagoda::kernels

#include "io/serving/delta_order.hpp"

#include <cstdint>
#include <random>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

namespace pagoda::serving {
namespace {

using Delivered = std::vector<std::pair<std::int32_t, TokenId>>;

/// A delta for each of `lengths[i]` tokens of the sequence i, sequences in the order that `random` says.
Delivered deliver(const std::vector<int>& lengths, std::mt19937& random, bool knows_ends) {
  DeltaOrder order(std::ssize(lengths));
  std::vector<SequenceDelta> deltas;
  std::vector<int> next(lengths.size(), 0);
  for (;;) {
    std::vector<std::size_t> left;
    for (std::size_t i = 0; i < lengths.size(); ++i) {
      if (next[i] < lengths[i]) left.push_back(i);
    }
    if (left.empty()) break;
    const std::size_t i = left[random() % left.size()];
    SequenceDelta delta;
    delta.index = static_cast<std::int32_t>(i);
    delta.token_ids = {next[i]++};
    delta.ended = knows_ends && next[i] == lengths[i];
    order.add(std::move(delta), deltas);
  }
  order.finish(deltas);
  Delivered delivered;
  for (const auto& delta : deltas) delivered.emplace_back(delta.index, delta.token_ids.front());
  return delivered;
}

TEST(DeltaOrder, IsTheSameWheneverWhichSequenceIsComputed) {
  std::mt19937 random(7);
  for (const auto& lengths : {std::vector<int>{5}, {3, 3, 3}, {1, 6, 2}, {4, 1, 1, 9}, {0, 2}}) {
    Delivered expected;
    for (int round = 0; round < 10; ++round) {
      for (std::size_t i = 0; i < lengths.size(); ++i) {
        if (round < lengths[i]) expected.emplace_back(static_cast<std::int32_t>(i), round);
      }
    }
    for (int seed = 0; seed < 50; ++seed) EXPECT_EQ(deliver(lengths, random, seed % 2 == 0), expected);
  }
}

TEST(DeltaOrder, TellsAtOnceWhatComesInItsOrder) {
  DeltaOrder order(2);
  std::vector<SequenceDelta> delivered;
  const auto add = [&](std::int32_t index, bool ended) {
    SequenceDelta delta;
    delta.index = index;
    delta.ended = ended;
    order.add(std::move(delta), delivered);
    return delivered.size();
  };
  EXPECT_EQ(add(0, false), 1U);
  EXPECT_EQ(add(1, true), 2U);
  EXPECT_EQ(add(0, false), 3U);
  EXPECT_EQ(add(0, false), 4U) << "nobody waits for one that has ended";
}

TEST(DeltaOrder, TakesNoSequenceThatARequestCannotHave) {
  for (const std::int64_t count : {std::int64_t{-1}, std::int64_t{1} << 40}) {
    DeltaOrder order(count);
    std::vector<SequenceDelta> delivered;
    SequenceDelta delta;
    delta.index = 1'000'000;
    order.add(delta, delivered);
    delta.index = -1;
    order.add(delta, delivered);
    EXPECT_TRUE(delivered.empty());
  }
}

}  // namespace
}  // namespace pagoda::serving

#include "engine/routing/tokenizer_queue.hpp"

#include <vector>

#include <gtest/gtest.h>

namespace pagoda::routing {
namespace {

using Jobs = std::vector<TokenizerQueue::JobId>;

constexpr std::int64_t kBig = 1 << 20;  // more than the tokenizer holds at a time
constexpr std::int64_t kMany = 1 << 30;

TokenizerQueue::JobId add(TokenizerQueue& queue, TokenizerQueue::ClientId client, std::int64_t bytes) {
  const auto job = queue.add(client, bytes);
  EXPECT_TRUE(job);
  return job.value_or(0);
}

/// Returns all waiting jobs, in the order in which the tokenizer gets them.
Jobs run(TokenizerQueue& queue) {
  Jobs order;
  while (const auto job = queue.next()) {
    order.push_back(*job);
    queue.finished(*job);
  }
  return order;
}

TEST(TokenizerQueue, ShortTextsFollowEachOtherWithoutAWaitAndLongOnesGoAlone) {
  TokenizerQueue queue(kMany);
  const auto first = add(queue, 1, 100);
  const auto second = add(queue, 1, 100);
  const auto big = add(queue, 1, kBig);
  const auto last = add(queue, 1, 100);
  EXPECT_EQ(queue.num_waiting(), 4);
  EXPECT_EQ(queue.next(), first);
  EXPECT_EQ(queue.next(), second);
  EXPECT_EQ(queue.next(), big);
  EXPECT_EQ(queue.next(), std::nullopt);
  queue.finished(first);
  queue.finished(second);
  EXPECT_EQ(queue.next(), std::nullopt);
  queue.finished(big);
  EXPECT_EQ(queue.next(), last);
  EXPECT_EQ(queue.num_waiting(), 0);
  queue.finished(last);
  EXPECT_EQ(queue.bytes(), 0);
}

TEST(TokenizerQueue, ManyLongTextsOfOneClientDelayAnothersByOne) {
  TokenizerQueue queue(kMany);
  Jobs big;
  for (int i = 0; i < 10; ++i) big.push_back(add(queue, 1, kBig));
  EXPECT_EQ(queue.next(), big[0]);
  const auto small = add(queue, 2, 10);
  const auto other = add(queue, 2, 10);
  queue.finished(big[0]);
  EXPECT_EQ(queue.next(), small);
  EXPECT_EQ(queue.next(), other);
}

TEST(TokenizerQueue, AClientThatSendsOneLongTextAfterTheOtherOvertakesNobody) {
  TokenizerQueue queue(kMany);
  add(queue, 1, kBig);
  for (int i = 0; i < 5; ++i) add(queue, 2, 10);
  const auto big = queue.next();
  ASSERT_TRUE(big);
  queue.finished(*big);
  const auto again = add(queue, 1, kBig);  // its queue was empty in between
  const Jobs order = run(queue);
  ASSERT_EQ(order.size(), 6U);
  EXPECT_EQ(order.back(), again);
}

TEST(TokenizerQueue, ANewClientGetsNoCreditForItsAbsence) {
  TokenizerQueue queue(kMany);
  for (int i = 0; i < 50; ++i) add(queue, 1, 1000);
  run(queue);
  Jobs both;
  for (int i = 0; i < 3; ++i) {
    both.push_back(add(queue, 1, 1000));
    both.push_back(add(queue, 2, 1000));
  }
  EXPECT_EQ(run(queue).size(), 6U);
}

TEST(TokenizerQueue, SaysQueueFullWithATimeToTryAgainBeyondItsBytesAndAClientsShare) {
  TokenizerQueue queue(16 * kBig);
  for (TokenizerQueue::ClientId client = 1; client <= 5; ++client) {
    for (int i = 0; i < 3; ++i) add(queue, client, kBig);
    const auto beyond_share = queue.add(client, kBig);
    ASSERT_FALSE(beyond_share);
    EXPECT_EQ(beyond_share.error().code, ErrorCode::queue_full);
    EXPECT_GT(beyond_share.error().retry_after_ms, 0);
  }
  EXPECT_FALSE(queue.add(6, kBig));
  EXPECT_TRUE(queue.add(6, 10));
  run(queue);
  EXPECT_TRUE(queue.add(1, 100 * kBig));  // a single text may have any length
  EXPECT_FALSE(queue.add(2, 1));
}

TEST(TokenizerQueue, WhatIsTakenBackIsNotGivenAndFreesItsBytes) {
  TokenizerQueue queue(kMany);
  const auto given = add(queue, 1, kBig);
  const auto waiting = add(queue, 1, kBig);
  const auto kept = add(queue, 1, kBig);
  ASSERT_EQ(queue.next(), given);
  queue.withdraw(waiting);
  queue.withdraw(given);  // too late: its bytes stay until it is finished
  queue.withdraw(given);
  EXPECT_EQ(queue.num_waiting(), 1);
  EXPECT_GT(queue.bytes(), 2 * kBig);
  queue.finished(given);
  EXPECT_EQ(run(queue), Jobs{kept});
  EXPECT_EQ(queue.bytes(), 0);
}

TEST(TokenizerQueue, AClientThatHasGoneLeavesNothingBehind) {
  TokenizerQueue queue(kMany);
  const auto given = add(queue, 1, kBig);
  const Jobs waiting = {add(queue, 1, kBig), add(queue, 1, kBig)};
  const auto other = add(queue, 2, 10);
  ASSERT_EQ(queue.next(), given);
  EXPECT_EQ(queue.forget(1), waiting);
  EXPECT_TRUE(queue.forget(1).empty());
  queue.finished(given);
  EXPECT_EQ(run(queue), Jobs{other});
  EXPECT_EQ(queue.bytes(), 0);
}

TEST(TokenizerQueue, ATextOfAClientThatHasGoneDoesNotCountForItsSuccessor) {
  constexpr std::int64_t kShare = 2 * kBig;
  TokenizerQueue queue(kShare * TokenizerQueue::kClientShare);
  const auto given = add(queue, 1, kBig);
  ASSERT_EQ(queue.next(), given);
  queue.forget(1);
  const auto again = add(queue, 1, kBig);
  std::vector<std::byte> bytes;
  Encoder out(bytes);
  queue.save(out);
  queue.finished(given);
  EXPECT_FALSE(queue.check(1, kBig));  // it would fit beside kBig - kBig = 0 bytes
  EXPECT_EQ(run(queue), Jobs{again});
  EXPECT_EQ(queue.bytes(), 0);

  TokenizerQueue loaded(kShare * TokenizerQueue::kClientShare);
  Decoder in(bytes);
  ASSERT_TRUE(loaded.load(in));
  loaded.finished(given);
  EXPECT_FALSE(loaded.check(1, kBig));
}

}  // namespace
}  // namespace pagoda::routing

#include "engine/model_pool/arrival_queue.hpp"

#include <gtest/gtest.h>

namespace pagoda::model_pool {
namespace {

constexpr TimeUs kSecond = 1'000'000;

ArrivalQueue line_of_two() {
  return {"m", {.max_waiting = 2, .max_bytes = 100, .max_wait_us = 10 * kSecond}};
}

TEST(ArrivalQueue, KeepsTheOrderAndRefusesWhatIsTooMuch) {
  auto line = line_of_two();
  const auto first = line.add({.client = 1, .tag = 1}, 0);
  const auto second = line.add({.client = 1, .tag = 2}, 0);
  const auto third = line.add({.client = 1, .tag = 3}, 0);
  ASSERT_FALSE(third.has_value());
  EXPECT_EQ(third.error().code, ErrorCode::queue_full);
  EXPECT_NE(third.error().message.find("the model m is not loaded yet, and 2 requests wait"), std::string::npos);
  EXPECT_GT(third.error().retry_after_ms, 0);
  EXPECT_EQ(line.take(), *first);
  EXPECT_EQ(line.take(), *second);
  EXPECT_FALSE(line.take().has_value());
}

TEST(ArrivalQueue, BytesAreBoundedButOneAloneHasItsPlace) {
  auto line = line_of_two();
  EXPECT_TRUE(line.add({.client = 1, .bytes = 500}, 0).has_value());
  const auto more = line.add({.client = 1, .bytes = 1}, 0);
  ASSERT_FALSE(more.has_value());
  EXPECT_EQ(more.error().code, ErrorCode::queue_full);
  line.take();
  EXPECT_TRUE(line.add({.client = 1, .bytes = 60}, 0).has_value());
  EXPECT_TRUE(line.add({.client = 1, .bytes = 40}, 0).has_value());
}

TEST(ArrivalQueue, ARequestIsCancelledByItsClientAndTagAlone) {
  auto line = line_of_two();
  const auto ticket = line.add({.client = 1, .tag = 7}, 0);
  EXPECT_FALSE(line.cancel(2, 7).has_value());
  EXPECT_FALSE(line.cancel(1, 8).has_value());
  EXPECT_EQ(line.cancel(1, 7), *ticket);
  EXPECT_TRUE(line.empty());
}

TEST(ArrivalQueue, AClientThatGoesTakesAllThatIsItsOwn) {
  auto line = line_of_two();
  const auto ticket = line.add({.client = 1, .tag = 7}, 0);
  line.add({.client = 2}, 0);
  EXPECT_EQ(line.client_gone(1), std::vector{*ticket});
  EXPECT_EQ(line.size(), 1U);
}

TEST(ArrivalQueue, WhatWaitsForTooLongHearsWhy) {
  auto line = line_of_two();
  const auto patient = line.add({.client = 1}, 0);
  const auto hasty = line.add({.client = 1, .time_us = 2 * kSecond}, kSecond);
  EXPECT_EQ(line.next_expiry(), 3 * kSecond);
  auto expired = line.expire(3 * kSecond);
  ASSERT_EQ(expired.size(), 1U);
  EXPECT_EQ(expired.front().ticket, *hasty);
  EXPECT_EQ(expired.front().error.code, ErrorCode::timeout);
  EXPECT_EQ(line.next_expiry(), 10 * kSecond);
  expired = line.expire(10 * kSecond);
  ASSERT_EQ(expired.size(), 1U);
  EXPECT_EQ(expired.front().ticket, *patient);
  EXPECT_EQ(expired.front().error.code, ErrorCode::queue_full);
  EXPECT_NE(expired.front().error.message.find("within 10 s"), std::string::npos);
}

}  // namespace
}  // namespace pagoda::model_pool

#include "io/serving/tenant_usage.hpp"

#include <gtest/gtest.h>

namespace pagoda::serving {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

/// A clock that the test sets.
constexpr LimitClock::time_point at(milliseconds time) {
  return LimitClock::time_point(std::chrono::hours(5)) + time;
}
constexpr auto kStart = at(milliseconds(0));

std::int64_t wait_ms(const std::optional<LimitRefusal>& refusal) {
  return refusal ? refusal->retry_after.count() : -1;
}
constexpr std::int64_t kTaken = -1;

TEST(TokenBucket, HoldsAMinutesWorthAndRefillsEvenly) {
  TokenBucket bucket(60, kStart);
  EXPECT_EQ(bucket.remaining(kStart), 60);
  bucket.take(60, kStart);
  EXPECT_EQ(bucket.remaining(kStart), 0);
  EXPECT_EQ(bucket.wait_for(1, kStart), seconds(1));
  EXPECT_EQ(bucket.wait_for(60, kStart), seconds(60));
  EXPECT_EQ(bucket.wait_for(1, at(milliseconds(400))), milliseconds(600));
  EXPECT_EQ(bucket.remaining(at(seconds(7))), 7);
  EXPECT_EQ(bucket.remaining(at(seconds(3600))), 60) << "no more than a minute's worth, however long nobody asks";
}

TEST(TokenBucket, OwesWhatWasTakenTooMuch) {
  TokenBucket bucket(60, kStart);
  bucket.take(90, kStart);
  EXPECT_EQ(bucket.remaining(kStart), 0);
  EXPECT_EQ(bucket.wait_for(1, kStart), seconds(31));
  bucket.take(-20, kStart);
  EXPECT_EQ(bucket.wait_for(1, kStart), seconds(11));
  bucket.take(-1000, kStart);
  EXPECT_EQ(bucket.remaining(kStart), 60) << "what is given back does not overflow";
}

TEST(TokenBucket, WhatIsMoreThanItHoldsWaitsUntilItIsFull) {
  TokenBucket bucket(60, kStart);
  EXPECT_EQ(bucket.wait_for(1000, kStart), milliseconds(0));
  bucket.take(1, kStart);
  EXPECT_EQ(bucket.wait_for(1000, kStart), seconds(1));
}

TEST(TokenBucket, AClockThatStandsStillOrGoesBackGivesNothing) {
  TokenBucket bucket(60, at(seconds(10)));
  bucket.take(60, at(seconds(10)));
  EXPECT_EQ(bucket.remaining(at(seconds(10))), 0);
  EXPECT_EQ(bucket.remaining(kStart), 0);
  bucket.take(0, kStart);
  EXPECT_EQ(bucket.remaining(at(seconds(11))), 1) << "and nothing twice";
}

TEST(TokenBucket, ManySmallWaitsAddUpToWhatWasPromised) {
  TokenBucket bucket(7, kStart);
  auto now = kStart;
  for (int i = 0; i < 500; ++i) {
    now += bucket.wait_for(1, now);
    ASSERT_EQ(bucket.wait_for(1, now), milliseconds(0)) << i;
    bucket.take(1, now);
  }
  const auto took = std::chrono::duration<double>(now - kStart).count();
  EXPECT_NEAR(took, (500 - 7) * 60.0 / 7, 1.0);
}

TEST(TenantUsage, WithoutLimitsEverythingIsTaken) {
  TenantUsage usage({}, kStart);
  for (int i = 0; i < 1000; ++i) EXPECT_FALSE(usage.admit(100, 1'000'000, kStart));
  EXPECT_FALSE(usage.levels(kStart).requests);
  EXPECT_FALSE(usage.levels(kStart).tokens);
  EXPECT_FALSE(usage.limits_tokens());
}

TEST(TenantUsage, RequestsAMinuteAreLimitedAndTheWaitIsTold) {
  TenantUsage usage({.requests_per_minute = 2}, kStart);
  EXPECT_EQ(wait_ms(usage.admit(1, 5, kStart)), kTaken);
  EXPECT_EQ(wait_ms(usage.admit(1, 5, kStart)), kTaken);
  const auto refusal = usage.admit(1, 5, kStart);
  EXPECT_EQ(wait_ms(refusal), 30'000);
  EXPECT_EQ(refusal->message, "this key has used up its 2 requests a minute: try again in 30 seconds");
  EXPECT_EQ(wait_ms(usage.admit(1, 5, at(milliseconds(29'999)))), 1);
  EXPECT_EQ(wait_ms(usage.admit(1, 5, at(seconds(30)))), kTaken);
}

TEST(TenantUsage, ARefusalTakesNothing) {
  TenantUsage usage({.requests_per_minute = 10, .tokens_per_minute = 100, .max_concurrent_requests = 1}, kStart);
  EXPECT_EQ(wait_ms(usage.admit(1, 80, kStart)), kTaken);
  usage.ended(1);
  EXPECT_EQ(wait_ms(usage.admit(1, 80, kStart)), 36'000);
  EXPECT_EQ(usage.levels(kStart).requests->remaining, 9);
  EXPECT_EQ(usage.levels(kStart).tokens->remaining, 20);
  EXPECT_EQ(wait_ms(usage.admit(1, 20, kStart)), kTaken) << "the place is free";
}

TEST(TenantUsage, TokensOfOutputsCountWhenTheyAreThere) {
  TenantUsage usage({.tokens_per_minute = 60}, kStart);
  EXPECT_TRUE(usage.limits_tokens());
  EXPECT_EQ(wait_ms(usage.admit(1, 10, kStart)), kTaken);
  usage.add_tokens(55, kStart);
  EXPECT_EQ(wait_ms(usage.admit(1, 0, kStart)), 6000) << "who owes waits, also with an empty prompt";
  EXPECT_EQ(wait_ms(usage.admit(1, 1, at(seconds(6)))), kTaken);
  EXPECT_EQ(usage.levels(at(seconds(6))).tokens->reset, seconds(60));
}

TEST(TenantUsage, ARequestLargerThanTheLimitIsTakenWhenNothingIsUsed) {
  TenantUsage usage({.tokens_per_minute = 60}, kStart);
  EXPECT_EQ(wait_ms(usage.admit(1, 600, kStart)), kTaken);
  EXPECT_EQ(wait_ms(usage.admit(1, 1, kStart)), 541'000) << "and is paid for";
}

TEST(TenantUsage, AtATimeNoMoreThanAllowedAreLive) {
  TenantUsage usage({.max_concurrent_requests = 3}, kStart);
  EXPECT_EQ(wait_ms(usage.admit(2, 1, kStart)), kTaken);
  EXPECT_EQ(wait_ms(usage.admit(2, 1, kStart)), 1000);
  EXPECT_EQ(wait_ms(usage.admit(1, 1, kStart)), kTaken);
  EXPECT_EQ(wait_ms(usage.admit(1, 1, kStart)), 1000);
  usage.ended(2);
  EXPECT_EQ(wait_ms(usage.admit(2, 1, kStart)), kTaken);
}

TEST(TenantUsage, WhatNoWaitingWillBringIsToldSo) {
  TenantUsage usage({.requests_per_minute = 5, .max_concurrent_requests = 3}, kStart);
  EXPECT_EQ(wait_ms(usage.admit(4, 1, kStart)), 0);
  usage.set_limits({.requests_per_minute = 5}, kStart);
  EXPECT_EQ(wait_ms(usage.admit(6, 1, kStart)), 0);
  EXPECT_EQ(wait_ms(usage.admit(5, 1, kStart)), kTaken);
}

TEST(TenantUsage, WhatTheEngineHadNoPlaceForCostsNothing) {
  TenantUsage usage({.requests_per_minute = 1, .tokens_per_minute = 10, .max_concurrent_requests = 1}, kStart);
  EXPECT_EQ(wait_ms(usage.admit(1, 10, kStart)), kTaken);
  usage.refused(1, 10, kStart);
  EXPECT_EQ(wait_ms(usage.admit(1, 10, kStart)), kTaken);
}

TEST(TenantUsage, NewLimitsKeepWhatIsUsed) {
  TenantUsage usage({.requests_per_minute = 10}, kStart);
  for (int i = 0; i < 8; ++i) EXPECT_EQ(wait_ms(usage.admit(1, 1, kStart)), kTaken);
  usage.set_limits({.requests_per_minute = 60}, kStart);
  EXPECT_EQ(usage.levels(kStart).requests->remaining, 2);
  usage.set_limits({.requests_per_minute = 1}, kStart);
  EXPECT_EQ(usage.levels(kStart).requests->remaining, 1);
  usage.set_limits({}, kStart);
  EXPECT_FALSE(usage.levels(kStart).requests);
}

TEST(TenantTicket, GivesItsPlaceBackOnceWhateverBecomesOfIt) {
  const auto usage = std::make_shared<TenantUsage>(TenantLimits{.max_concurrent_requests = 1}, LimitClock::now());
  const auto is_free = [&] {
    TenantTicket probe;
    return !probe.admit(usage, 1, 1);
  };
  {
    TenantTicket ticket;
    EXPECT_FALSE(ticket.admit(usage, 1, 1));
    EXPECT_FALSE(is_free());
    TenantTicket moved;
    moved = std::move(ticket);
    EXPECT_FALSE(is_free());
    moved.end();
    moved.end();
    EXPECT_TRUE(is_free());
  }
  EXPECT_TRUE(is_free());
  TenantTicket refused;
  EXPECT_FALSE(refused.admit(usage, 1, 1));
  refused.refused();
  refused.end();
  EXPECT_TRUE(is_free());
  {
    TenantTicket dropped;
    EXPECT_FALSE(dropped.admit(usage, 1, 1));
  }
  EXPECT_TRUE(is_free());
}

TEST(TenantTicket, OfNobodyEverythingIsFree) {
  TenantTicket ticket;
  EXPECT_FALSE(ticket.admit(nullptr, 1'000'000, 1'000'000));
  EXPECT_FALSE(ticket.counts_tokens());
  ticket.add_tokens(5);
}

}  // namespace
}  // namespace pagoda::serving

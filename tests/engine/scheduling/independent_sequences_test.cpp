// Tests requests with n above 1: each sequence is admitted, preempted and resumed separately.

#include <gtest/gtest.h>

#include "tests/engine/scheduling/service.hpp"

namespace pagoda::scheduling {
namespace {

constexpr std::int32_t kSamples = 6;
constexpr std::int32_t kTokens = 60;

/// Makes a service with room for each of six sequences of 96 + 60 tokens alone, and for all while they share their
/// prompt.
Service service_with_forty_blocks(bool caches, PreemptionPolicy preemption = PreemptionPolicy::recompute) {
  SchedulerConfig config = config_of(SchedulingPolicy::fcfs, 16);
  config.max_num_batched_tokens = 384;
  config.pipeline_depth = 2;
  config.preemption = preemption;
  config.can_swap = preemption != PreemptionPolicy::recompute;
  return Service(config, {.layout = KvLayout::uniform(16),
                          .num_device_blocks = 40,
                          .num_host_blocks = config.can_swap ? 80 : 0,
                          .enable_prefix_caching = caches});
}

void expect_whole_answers(Service& service, RequestId id) {
  service.run();
  EXPECT_EQ(service.num_tokens[id], kSamples * kTokens);
  EXPECT_EQ(service.stats().requests_waiting + service.stats().requests_running, 0);
  EXPECT_EQ(service.blocks_owned(), 0);
}

TEST(IndependentSequences, AreAnsweredWholeBehindADeadDeviceThatLeavesThemNoSharedPrompt) {
  for (const bool caches : {false, true}) {
    Service service = service_with_forty_blocks(caches);
    service.add(2, count_from(0, 96), kTokens, 0, {}, kSamples);
    while (service.num_tokens[2] < 3 * kSamples) ASSERT_TRUE(service.step());
    service.lose_worker();
    expect_whole_answers(service, 2);
  }
}

TEST(IndependentSequences, AreAnsweredWholeBesideARequestThatTakesTheirMemory) {
  for (const auto preemption : {PreemptionPolicy::recompute, PreemptionPolicy::swap, PreemptionPolicy::automatic}) {
    for (const std::int64_t length : {32, 96, 160, 240, 320}) {
      Service service = service_with_forty_blocks(false, preemption);
      service.add(1, length, 200);
      service.add(2, count_from(5000, 96), kTokens, 0, {}, kSamples);
      expect_whole_answers(service, 2);
      EXPECT_EQ(service.num_tokens[1], 200);
    }
  }
}

TEST(IndependentSequences, ThatDoNotFitThePoolTogetherTakeTurns) {
  // 16 sequences of 20 + 200 tokens need 4 times the blocks of the pool.
  for (const auto preemption : {PreemptionPolicy::recompute, PreemptionPolicy::swap}) {
    SchedulerConfig config = config_of(SchedulingPolicy::fcfs, 16);
    config.preemption = preemption;
    config.can_swap = true;
    Service service(config, {.layout = KvLayout::uniform(16),
                             .num_device_blocks = 60,
                             .num_host_blocks = 60,
                             .enable_prefix_caching = false});
    service.add(1, 20, 200, 0, {}, 16);
    service.run();
    EXPECT_EQ(service.num_tokens[1], 16 * 200);
    EXPECT_GT(service.num_preemptions[1], 0);
    EXPECT_EQ(service.stats().preemptions_swap_total > 0, preemption == PreemptionPolicy::swap);
  }
}

TEST(IndependentSequences, OnlyTheOneThatAloneOutgrowsThePoolIsCut) {
  Service service(config_of(SchedulingPolicy::fcfs, 8), {.layout = KvLayout::uniform(4), .num_device_blocks = 10});
  service.add(1, 8, 100, 0, {}, 3);
  service.run();
  // A sequence without room for its next token can still sample one.
  EXPECT_EQ(service.num_tokens[1], 3 * (40 - 8 + 1));
  EXPECT_EQ(service.finished.size(), 3U);
  EXPECT_EQ(service.stats().requests_failed_total, 0);
}

TEST(IndependentSequences, StartWhenARowIsFreeAsASingleSequenceDoes) {
  const auto first_token = [](std::int32_t n) {
    Service service(config_of(SchedulingPolicy::fcfs, 16));
    for (RequestId id = 1; id <= 16; ++id) service.add(id, 10, 20 + 5 * static_cast<std::int64_t>(id));
    for (int i = 0; i < 5; ++i) service.step();
    service.add(100, 10, 20, 0, {}, n);
    service.run();
    EXPECT_EQ(service.num_tokens[100], n * 20);
    return service.first_token_in[100];
  };
  EXPECT_EQ(first_token(8), first_token(1));
}

TEST(IndependentSequences, TakeRowsOneByOneSoThatNoneIsIdleWhileRequestsWait) {
  // 64 requests end one after the other; after them 16 sequences wait, and then 50 requests.
  const auto run = [](std::int32_t n) {
    constexpr std::int32_t kRows = 64;
    constexpr RequestId kMany = 100;
    Service service(config_of(SchedulingPolicy::fcfs, kRows),
                    {.layout = KvLayout::uniform(16), .num_device_blocks = 600});
    for (RequestId id = 1; id <= kRows; ++id) service.add(id, 10, 20 + static_cast<std::int64_t>(id));
    while (service.num_tokens[kRows] < 5) service.step();
    for (RequestId id = kMany; id < kMany + 16; id += static_cast<RequestId>(n)) service.add(id, 10, 50, 0, {}, n);
    for (RequestId id = 200; id < 250; ++id) service.add(id, 10, 50);
    for (int i = 0; i < 50; ++i) {
      service.step();
      EXPECT_GE(service.tokens_of_steps.back(), kRows - 1) << "step " << service.num_steps << ", n = " << n;
    }
    EXPECT_GT(service.stats().requests_waiting, 0) << "the rows must be scarce all the time";
    return service.first_token_in[kMany];
  };
  EXPECT_EQ(run(16), run(1));
}

TEST(IndependentSequences, MayBeMoreThanThereAreRows) {
  Service service(config_of(SchedulingPolicy::fcfs, 4));
  service.add(1, 10, 5, 0, {}, 30);
  service.run();
  EXPECT_EQ(service.num_tokens[1], 30 * 5);
  EXPECT_EQ(service.finished.size(), 30U);
}

}  // namespace
}  // namespace pagoda::scheduling

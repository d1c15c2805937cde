// Tests the order when rows or memory are scarce: more urgent requests, and short prompts beside long ones.

#include <algorithm>
#include <memory>

#include <gtest/gtest.h>

#include "tests/engine/scheduling/service.hpp"

namespace pagoda::scheduling {
namespace {

SchedulerConfig by_priority(std::int32_t max_num_seqs, bool preempts = true) {
  SchedulerConfig config = config_of(SchedulingPolicy::priority, max_num_seqs);
  config.preempts_for_priority = preempts;
  return config;
}

/// Returns the steps until the urgent request has its first token, after four requests of lower priority took all rows.
int steps_to_first_token_without_rows(bool preempts) {
  Service service(by_priority(4, preempts));
  for (RequestId id = 1; id <= 4; ++id) service.add(id, 10, 100, 5);
  for (int i = 0; i < 5; ++i) service.step();
  service.add(10, 10, 5, -100);
  service.run();
  for (RequestId id = 1; id <= 4; ++id) EXPECT_EQ(service.num_tokens[id], 100) << "nothing is lost";
  EXPECT_EQ(service.num_preemptions.size(), preempts ? 1U : 0U) << "one row is enough";
  return service.first_token_in[10] - 5;
}

TEST(GivingWay, ARunningRequestGivesItsRowToAMoreUrgentOne) {
  EXPECT_LE(steps_to_first_token_without_rows(true), 3);
  EXPECT_GT(steps_to_first_token_without_rows(false), 50);
}

TEST(GivingWay, RunningRequestsGiveTheirMemoryToAMoreUrgentOne) {
  for (const bool swaps : {false, true}) {
    SchedulerConfig config = by_priority(16);
    config.can_swap = swaps;
    config.preemption = swaps ? PreemptionPolicy::swap : PreemptionPolicy::recompute;
    Service service(config,
                    {.layout = KvLayout::uniform(4), .num_device_blocks = 50, .num_host_blocks = swaps ? 100 : 0});
    for (RequestId id = 1; id <= 4; ++id) service.add(id, 30, 15, static_cast<std::int64_t>(id));
    for (int i = 0; i < 3; ++i) service.step();
    const int before = service.num_steps;
    service.add(10, 80, 5, -1);  // needs 21 blocks
    service.run();
    EXPECT_LE(service.first_token_in[10] - before, 3);
    EXPECT_EQ(service.num_preemptions.count(1) + service.num_preemptions.count(2), 0U) << "the least urgent go";
    for (RequestId id = 1; id <= 4; ++id) EXPECT_EQ(service.num_tokens[id], 15);
  }
}

TEST(GivingWay, IsNotForRequestsOfTheSamePriorityNorForOnesThatCannotBeHelped) {
  Service service(by_priority(4), {.layout = KvLayout::uniform(4), .num_device_blocks = 40});
  service.add(1, 30, 40, 0);
  service.add(2, 30, 40, 7);
  for (int i = 0; i < 3; ++i) service.step();
  service.add(3, 30, 4, 7);   // as urgent as the last running request
  service.add(4, 150, 4, 3);  // needs more than the last running request could free
  for (int i = 0; i < 10; ++i) service.step();
  EXPECT_TRUE(service.num_preemptions.empty());
  service.run();
  EXPECT_EQ(service.finished.size(), 4U);
}

TEST(GivingWay, BlocksThatOthersShareHelpNobody) {
  Service service(by_priority(16), {.layout = KvLayout::uniform(4), .num_device_blocks = 100});
  const TokenIds shared(160, 7);  // 40 blocks
  service.add(1, shared, 40, -5);
  for (int i = 0; i < 3; ++i) service.step();
  for (RequestId id = 2; id <= 5; ++id) service.add(id, shared, 40, 5);
  for (int i = 0; i < 6; ++i) service.step();
  EXPECT_EQ(service.first_token_in.count(5), 1U) << "all run";
  service.add(10, 280, 4, -1);  // 70 blocks, more than the less urgent ones have for themselves
  for (int i = 0; i < 6; ++i) service.step();
  EXPECT_TRUE(service.num_preemptions.empty());
  service.run();
  EXPECT_EQ(service.finished.size(), 6U);
}

TEST(GivingWay, NoRowIsTakenForALongPromptThatMustWaitForAnother) {
  SchedulerConfig config = by_priority(2);
  config.max_num_batched_tokens = 1000;
  config.long_prefill_tokens = 100;
  config.max_partial_long_prompts = 1;
  Service service(config, {.layout = KvLayout::uniform(16), .num_device_blocks = 500});
  service.add(1, 10, 100, 5);
  service.step();
  service.add(2, 2000, 1, 0);
  for (int i = 0; i < 3; ++i) service.step();
  service.add(3, 2000, 1, -5);
  service.run();
  EXPECT_EQ(service.finished.size(), 3U);
  EXPECT_LE(service.num_preemptions[1], 2);
}

TEST(GivingWay, NoRowIsTakenBeforeTheDelayOfTheUrgentRequestHasPassed) {
  SchedulerConfig config = by_priority(2);
  config.delay_factor = 6.5;  // steps take 1 ms
  Service service(config);
  for (RequestId id = 1; id <= 2; ++id) service.add(id, 10, 100, 5);
  for (int i = 0; i < 5; ++i) service.step();
  service.add(3, 10, 5, -5);
  for (int i = 0; i < 5; ++i) service.step();
  EXPECT_TRUE(service.num_preemptions.empty()) << "it could not come in";
  service.run();
  EXPECT_LE(service.first_token_in[3] - 5, 10);
  EXPECT_EQ(service.num_preemptions.size(), 1U);
}

TEST(GivingWay, ARunningRequestGivesItsPlaceInTheTargetToAMoreUrgentOne) {
  for (const bool swaps : {false, true}) {
    SchedulerConfig config = by_priority(64);
    config.target_step_us = 100'000;  // 12 of the 64 rows
    config.can_swap = swaps;
    config.preemption = swaps ? PreemptionPolicy::swap : PreemptionPolicy::recompute;
    Service service(config, {.layout = KvLayout::uniform(16), .num_device_blocks = 1'000, .num_host_blocks = 1'000});
    service.step_us = 20'000;
    service.token_us = 5'000;
    for (RequestId id = 1; id <= 40; ++id) service.add(id, 8, 400, 5);
    for (int i = 0; i < 60; ++i) service.step();
    EXPECT_TRUE(service.num_preemptions.empty());
    const int before = service.num_steps;
    service.add(100, 8, 5, -100);
    for (int i = 0; i < 20; ++i) service.step();
    ASSERT_TRUE(service.first_token_in.contains(100));
    EXPECT_LE(service.first_token_in[100] - before, 4);
    EXPECT_LE(service.num_preemptions.size(), 2U) << "one place is enough";
  }
}

TEST(GivingWay, ARequestThatPassedAnEquallyUrgentOneKeepsItsMemory) {
  SchedulerConfig config = by_priority(16);
  config.max_adapters = 1;
  Service service(config, {.layout = KvLayout::uniform(4), .num_device_blocks = 40});
  const auto add = [&](RequestId id, std::size_t num_prompt_tokens, std::int64_t max_tokens, AdapterId adapter) {
    service.add(id, TokenIds(num_prompt_tokens, static_cast<TokenId>(id)), max_tokens, 5, {}, 1, {}, adapter);
  };
  add(1, 10, 5, 1);
  add(2, 100, 4, 2);  // waits until the step has no other adapter
  add(3, 100, 20, 0);
  while (service.num_tokens[3] < 15) ASSERT_TRUE(service.step());
  EXPECT_EQ(service.num_tokens[1], 5);
  EXPECT_EQ(service.num_tokens[2], 0) << "it waits for memory now";
  service.run();
  EXPECT_TRUE(service.num_preemptions.empty());
  EXPECT_EQ(service.num_tokens[2], 4);
}

TEST(GivingWay, ASwappedRequestLetsAMoreUrgentOneInFirst) {
  for (const bool swaps : {true, false}) {
    SchedulerConfig config = by_priority(16, false);
    config.max_num_batched_tokens = 512;
    config.can_swap = swaps;
    config.preemption = swaps ? PreemptionPolicy::swap : PreemptionPolicy::recompute;
    Service service(config,
                    {.layout = KvLayout::uniform(16), .num_device_blocks = 100, .num_host_blocks = swaps ? 100 : 0});
    service.add(1, 800, 600, 0);
    service.add(2, 600, 600, 5);
    while (service.num_preemptions[2] == 0) ASSERT_TRUE(service.step());
    EXPECT_EQ(service.stats().preemptions_swap_total > 0, swaps);
    const int before = service.num_steps;
    service.add(3, 40, 20, -10);
    service.run();
    EXPECT_LE(service.first_token_in[3] - before, 3);
  }
}

/// Returns the number of swapped requests when memory is free again, but a beam search of this priority waits for rows.
std::int64_t num_swapped_beside_a_search_without_rows(std::int64_t priority) {
  SchedulerConfig config = by_priority(4, false);
  config.max_num_batched_tokens = 512;
  config.can_swap = true;
  config.preemption = PreemptionPolicy::swap;
  Service service(config, {.layout = KvLayout::uniform(16), .num_device_blocks = 90, .num_host_blocks = 90});
  service.add(1, 16, 400, 0);
  service.add(2, 640, 120, 0);
  service.add(3, 640, 300, 5);
  while (service.stats().requests_swapped == 0 && service.step()) {
  }
  EXPECT_EQ(service.num_preemptions[3], 1);
  auto search = std::make_shared<RequestSpec>();
  search->id = 4;
  search->prompt = std::make_shared<const TokenIds>(TokenIds(600, 4));  // its first step samples nothing
  search->sampling.use_beam_search = true;
  search->sampling.n = 4;
  search->priority = priority;
  service.add(search);
  while (service.place_of(2) == service.finished.size() && service.step()) {
  }
  for (int i = 0; i < 5; ++i) service.step();
  const std::int64_t swapped = service.stats().requests_swapped;
  while (std::ranges::find(service.started, RequestId{4}) == service.started.end() && service.step()) {
  }
  EXPECT_EQ(service.stats().requests_swapped, swapped) << "the search has all rows, or came last";
  service.abort(4);
  service.run();
  EXPECT_EQ(service.num_tokens[3], 300);
  return swapped;
}

TEST(GivingWay, ASwappedRequestDoesNotPassAMoreUrgentOneThatLacksRows) {
  EXPECT_EQ(num_swapped_beside_a_search_without_rows(-10), 1);
  EXPECT_EQ(num_swapped_beside_a_search_without_rows(10), 0) << "the swapped request is more urgent";
}

/// Returns the steps from the request of a third tenant to its first token. Another tenant's request was preempted and
/// does not fit beside the running one. The new tenant has an equal counter, and comes behind the one that waits
/// longer.
int steps_to_first_token_of_the_next_tenant(bool swaps) {
  SchedulerConfig config = config_of(SchedulingPolicy::fair, 16);
  config.max_num_batched_tokens = 512;
  config.can_swap = swaps;
  config.preemption = swaps ? PreemptionPolicy::swap : PreemptionPolicy::recompute;
  Service service(config,
                  {.layout = KvLayout::uniform(16), .num_device_blocks = 100, .num_host_blocks = swaps ? 100 : 0});
  service.add(1, 800, 600, 0, "a");
  service.add(2, 600, 600, 0, "c");
  while (service.num_preemptions[2] == 0 && service.step()) {
  }
  EXPECT_EQ(service.stats().preemptions_swap_total > 0, swaps);
  const int before = service.num_steps;
  service.add(3, 40, 20, 0, "b");
  while (service.num_tokens[3] == 0 && service.step()) {
  }
  return service.first_token_in[3] - before;
}

TEST(GivingWay, ASwappedRequestHoldsBackNoTenantThatARecomputedOneLetsPass) {
  EXPECT_EQ(steps_to_first_token_of_the_next_tenant(/*swaps=*/false),
            steps_to_first_token_of_the_next_tenant(/*swaps=*/true));
}

TEST(LongPrompts, LetShortOnesPassWithinAFewSteps) {
  for (const int num_long : {1, 3}) {
    SchedulerConfig config = config_of(SchedulingPolicy::fcfs, 256);
    config.max_num_batched_tokens = 2048;
    Service service(config, {.layout = KvLayout::uniform(256), .num_device_blocks = 1'500});
    RequestId id = 0;
    for (int i = 0; i < num_long; ++i) service.add(++id, 100'000, 10);
    service.step();
    for (int i = 0; i < 64; ++i) service.add(++id, 20, 10);
    service.run();
    int last = 0;
    for (RequestId one = static_cast<RequestId>(num_long) + 1; one <= id; ++one) {
      last = std::max(last, service.first_token_in[one]);
    }
    EXPECT_LE(last, 4);
    // 64 short prompts of 1,280 tokens delay the long one by a step.
    EXPECT_LE(service.first_token_in[1], 100'000 / 2048 + 3);
  }
}

TEST(LongPrompts, LetMoreUrgentShortOnesPassWithinAFewSteps) {
  for (const bool preempts : {true, false}) {
    SchedulerConfig config = by_priority(256, preempts);
    config.max_num_batched_tokens = 2048;
    Service service(config, {.layout = KvLayout::uniform(256), .num_device_blocks = 1'500});
    service.add(1, 100'000, 10, 5);
    service.step();
    service.add(2, 20, 10, -5);
    service.run();
    EXPECT_LE(service.first_token_in[2], 4);
    EXPECT_LE(service.first_token_in[1], 100'000 / 2048 + 3);
  }
}

TEST(LongPrompts, ThatArePassedTakeNoAdaptersPlaceInTheStep) {
  SchedulerConfig config = config_of(SchedulingPolicy::fcfs, 16);
  config.max_num_batched_tokens = 1'000;
  config.max_partial_long_prompts = 1;
  config.max_adapters = 1;
  Service service(config, {.layout = KvLayout::uniform(16), .num_device_blocks = 3'000});
  const auto add = [&](RequestId id, std::size_t num_prompt_tokens, AdapterId adapter) {
    service.add(id, TokenIds(num_prompt_tokens, static_cast<TokenId>(id)), 2, 0, {}, 1, {}, adapter);
  };
  add(1, 20'000, 0);
  service.step();
  add(2, 20'000, 7);
  add(3, 20, 8);
  service.run();
  EXPECT_LE(service.first_token_in[3], 6);
  EXPECT_EQ(service.finished.size(), 3U);
}

TEST(LongPrompts, LeaveASwappedRequestATokenToComeBack) {
  SchedulerConfig config = by_priority(2);
  config.max_num_batched_tokens = 64;
  config.can_swap = true;
  config.preemption = PreemptionPolicy::swap;
  Service service(config, {.layout = KvLayout::uniform(4), .num_device_blocks = 1'000, .num_host_blocks = 100});
  service.add(1, 10, 20, 0);
  service.add(2, 10, 100, 5);
  for (int i = 0; i < 3; ++i) service.step();
  service.add(3, 3'000, 1, -5);  // takes the row of request 2
  while (service.place_of(1) == service.finished.size()) ASSERT_TRUE(service.step());
  EXPECT_EQ(service.stats().requests_swapped, 1);
  for (int i = 0; i < 2; ++i) service.step();
  EXPECT_EQ(service.stats().requests_swapped, 0);
  EXPECT_EQ(service.num_tokens[3], 0) << "its prompt still runs";
  EXPECT_EQ(service.tokens_of_steps.back(), 64) << "no token is unused";
  service.run();
  EXPECT_EQ(service.finished.size(), 3U);
}

TEST(LongPrompts, LeaveNothingUnusedWhereNoOtherPromptWaits) {
  SchedulerConfig config = config_of(SchedulingPolicy::fcfs, 256);
  config.max_num_batched_tokens = 2048;
  Service service(config, {.layout = KvLayout::uniform(256), .num_device_blocks = 1'500});
  service.add(1, 20'480, 1);
  service.run();
  EXPECT_EQ(service.num_steps, 10);
}

TEST(LongPrompts, RunNoMoreTokensAStepThanTheirThresholdAllows) {
  SchedulerConfig config = config_of(SchedulingPolicy::fcfs, 16);
  config.max_num_batched_tokens = 1000;
  config.long_prefill_tokens = 100;
  config.max_partial_long_prompts = 2;
  Service service(config, {.layout = KvLayout::uniform(16), .num_device_blocks = 500});
  for (RequestId id = 1; id <= 3; ++id) service.add(id, 2000, 1);
  service.step();
  EXPECT_EQ(service.tokens_of_steps.back(), 200) << "two of the three, 100 tokens each";
  service.run();
  EXPECT_EQ(service.finished.size(), 3U);
}

TEST(PromptLogprobs, OfManyTokensComeWithManySteps) {
  for (const bool shared : {false, true}) {
    Service service(config_of(SchedulingPolicy::fcfs));
    const auto wants_many = [&](RequestId id, std::int64_t logprobs) {
      service.add(id, TokenIds(100, static_cast<TokenId>(id)), 5, 0, {}, 1, logprobs);
    };
    wants_many(1, kMaxPromptLogprobsOfStep / 10 - 1);  // a step has room for the log-probabilities of ten tokens
    if (shared) wants_many(2, kMaxPromptLogprobsOfStep / 10 - 1);
    service.add(3, 100, 5);
    service.run();
    EXPECT_EQ(service.finished.size(), shared ? 3U : 2U);
    EXPECT_LE(*std::ranges::max_element(service.prompt_logprobs_of_steps), 12);
    EXPECT_LE(service.first_token_in[3], 3) << "others do not wait for the whole prompt";
    EXPECT_GE(service.first_token_in[1], 10);
  }
  Service service(config_of(SchedulingPolicy::fcfs));
  // One token has more log-probabilities than a step may have.
  service.add(1, TokenIds(100, 7), 5, 0, {}, 1, 3 * kMaxPromptLogprobsOfStep);
  service.add(2, TokenIds(100, 8), 5, 0, {}, 1, 20);  // few
  service.run();
  EXPECT_EQ(service.finished.size(), 2U);
  EXPECT_EQ(*std::ranges::max_element(service.prompt_logprobs_of_steps), 100);
}

}  // namespace
}  // namespace pagoda::scheduling

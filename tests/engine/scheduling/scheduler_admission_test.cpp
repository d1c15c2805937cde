#include <algorithm>
#include <numeric>
#include <set>

#include "tests/engine/scheduling/service.hpp"

namespace pagoda::scheduling {
namespace {

class AtDepth : public testing::TestWithParam<std::int32_t> {
 protected:
  static SchedulerConfig config(std::int32_t max_num_seqs = 16) {
    SchedulerConfig config = config_of(SchedulingPolicy::fcfs, max_num_seqs);
    config.pipeline_depth = GetParam();
    return config;
  }
};

INSTANTIATE_TEST_SUITE_P(Pipeline, AtDepth, testing::Values(1, 2));

TEST_P(AtDepth, BlocksThatLeaveTheSlidingWindowLetTheNextPromptStart) {
  Service service(config(), {.layout = KvLayout::uniform(4, 8), .num_device_blocks = 20});
  service.add(1, count_from(0, 64), 100);
  service.add(2, count_from(1000, 64), 10);
  service.run();
  EXPECT_LE(service.first_token_in[2], 4) << "long before request 1 ends";
}

TEST_P(AtDepth, EqualPromptsStartTogetherAndHoldTheirBlocksOnce) {
  Service service(config(), {.layout = KvLayout::uniform(4), .num_device_blocks = 24});
  service.add(1, count_from(5, 64), 12);
  service.add(2, count_from(5, 64), 10);
  service.run();
  EXPECT_LE(service.first_token_in[2], 2);
  EXPECT_EQ(service.stats().preemptions_recompute_total, 0);
}

TEST_P(AtDepth, APromptThatManyShareIsComputedOnce) {
  SchedulerConfig config = this->config(64);
  config.max_num_batched_tokens = 2048;
  Service service(config, {.layout = KvLayout::uniform(16), .num_device_blocks = 4000});
  for (RequestId id = 1; id <= 32; ++id) {
    TokenIds prompt = count_from(0, 480);
    prompt.push_back(static_cast<TokenId>(5000 + id));
    service.add(id, prompt, 100);
  }
  service.plan();
  EXPECT_EQ(service.newest_step().work.size(), 32U);
  EXPECT_EQ(service.blocks_owned(), 30 + 32);
}

TEST_P(AtDepth, PromptsThatAreCachedStartByWhatTheyHaveToCompute) {
  Service service(config(64), {.layout = KvLayout::uniform(32), .num_device_blocks = 1000});
  const auto prompt = [](RequestId id) {
    TokenIds tokens = count_from(0, 2048);
    for (int i = 0; i < 10; ++i) tokens.push_back(static_cast<TokenId>(id * 100) + i);
    return tokens;
  };
  service.add(100, prompt(100), 2);
  service.run();
  const int before = service.num_steps;
  for (RequestId id = 101; id <= 132; ++id) service.add(id, prompt(id), 200);
  while (service.first_token_in.size() < 33) ASSERT_TRUE(service.step());
  EXPECT_EQ(service.num_steps - before, 2) << "320 tokens under a budget of 256";
}

TEST_P(AtDepth, ASequenceOfAGroupThatRunsOnComesBack) {
  SchedulerConfig config = this->config();
  config.policy = SchedulingPolicy::priority;
  Service service(config, {.layout = KvLayout::uniform(4), .num_device_blocks = 40, .enable_prefix_caching = false});
  service.add(1, count_from(0, 4), 40, 0, {}, 3);
  for (int i = 0; i < 9; ++i) service.step();
  service.lose_worker();
  service.add(2, count_from(100, 116), 4, -1);  // takes the blocks that the third sequence needs
  service.run();
  EXPECT_LT(service.num_steps, 60) << "they run beside each other again as soon as there is room";
  EXPECT_EQ(service.num_tokens[1], 3 * 40);
  EXPECT_EQ(std::ranges::count(service.finished, RequestId{1}), 3);
}

/// The group has two sequences on the host and one that waits.
TEST(SchedulerAdmission, ASequenceThatWaitsIsNotAdmittedWhileTheRestOfItsGroupIsOnTheHost) {
  SchedulerConfig config = config_of(SchedulingPolicy::priority, 16);
  config.can_swap = true;
  config.preemption = PreemptionPolicy::swap;
  Service service(
      config,
      {.layout = KvLayout::uniform(4), .num_device_blocks = 13, .num_host_blocks = 13, .enable_prefix_caching = false});
  service.add(1, 8, 40, 0, {}, 3);
  for (int i = 0; i < 9; ++i) service.step();
  service.lose_worker();
  for (int i = 0; i < 6; ++i) service.step();
  service.add(2, 4, 8, -1);
  service.run();
  EXPECT_EQ(service.num_tokens[2], 8);
  EXPECT_EQ(std::ranges::count(service.finished, RequestId{1}), 3);
  EXPECT_GT(service.stats().preemptions_swap_total, 0);
}

TEST(SchedulerAdmission, AGroupComesBackFromTheHostToThePrefixThatItShared) {
  SchedulerConfig config = config_of(SchedulingPolicy::priority, 16);
  config.can_swap = true;
  config.preemption = PreemptionPolicy::swap;
  Service service(config, {.layout = KvLayout::uniform(4), .num_device_blocks = 40, .num_host_blocks = 100});
  service.add(1, count_from(0, 41), 60, 0);
  service.step();
  service.add(2, count_from(0, 41), 60, 1);
  for (int i = 0; i < 3; ++i) service.step();
  EXPECT_EQ(service.blocks_owned(), 12);
  service.add(3, count_from(1000, 100), 8, -1);
  while (service.stats().requests_swapped == 0) ASSERT_TRUE(service.step());
  while (service.stats().requests_swapped > 0) ASSERT_TRUE(service.step());
  const EngineStats stats = service.stats();
  const std::int64_t before = stats.host_blocks_total - stats.host_blocks_free;
  EXPECT_EQ(before, 0);
  service.run();
  EXPECT_EQ(service.num_tokens[2], 60);
  EXPECT_EQ(service.stats().preemptions_recompute_total, 0) << "the prefix is still there";
}

TEST(SchedulerAdmission, PromptsKeepAShareOfTheStepHoweverManyDecode) {
  SchedulerConfig config = config_of(SchedulingPolicy::fcfs, 256);
  Service service(config, {.layout = KvLayout::uniform(4), .num_device_blocks = 10000});
  for (RequestId id = 1; id <= 250; ++id) service.add(id, 1, 400);
  for (int i = 0; i < 5; ++i) service.step();
  service.add(1000, 512, 4);
  const int before = service.num_steps;
  std::set<std::int32_t> paused;
  while (!service.first_token_in.contains(1000)) {
    ASSERT_TRUE(service.plan());
    EXPECT_LE(service.newest_step().work.size(), 256U - 256 / kPromptShare + 1);
    std::set<RowId> rows;
    for (const RowWork& work : service.newest_step().work) rows.insert(work.row);
    for (RowId row = 0; row < 250; ++row) {
      if (!rows.contains(row)) paused.insert(row);
    }
    service.complete();
  }
  EXPECT_LE(service.num_steps - before, 512 * kPromptShare / 256 + 1) << "six tokens a step would take 86";
  EXPECT_GT(paused.size(), 200U) << "decodes pause in turns";
  for (int i = 0; i < 3; ++i) service.step();
  service.step();
  EXPECT_EQ(service.tokens_of_steps.back(), 250) << "without prompts nobody pauses";
}

/// Returns the number of decoding rows in each step in which a prompt of 2,000 tokens runs beside `decoding` others,
/// when a token takes 10 ms and prompts may add 100 ms.
std::vector<std::size_t> decodes_beside_a_prompt(std::int32_t decoding) {
  SchedulerConfig config = config_of(SchedulingPolicy::fcfs, 256);
  config.max_num_batched_tokens = 384;
  config.max_chunk_us = 100'000;
  Service service(config, {.layout = KvLayout::uniform(32), .num_device_blocks = 10000});
  service.token_us = 10'000;
  for (RequestId id = 1; id <= static_cast<RequestId>(decoding); ++id) service.add(id, 8, 5000);
  for (int i = 0; i < 80; ++i) service.step();
  service.add(1000, count_from(5000, 2000), 4);
  std::vector<std::size_t> decodes;
  while (!service.first_token_in.contains(1000)) {
    EXPECT_TRUE(service.plan());
    decodes.push_back(service.newest_step().work.size() - 1);
    service.complete();
  }
  return decodes;
}

TEST(SchedulerAdmission, DecodesPauseOnlyWhereTheyFillTheStep) {
  for (const std::int32_t decoding : {1, 4, 30, 100}) {
    const auto decodes = decodes_beside_a_prompt(decoding);
    EXPECT_EQ(std::ranges::count(decodes, static_cast<std::size_t>(decoding)), std::ssize(decodes));
  }
}

TEST(SchedulerAdmission, NobodyPausesForAHeadThatLacksRows) {
  SchedulerConfig config = config_of(SchedulingPolicy::fcfs, 30);
  config.max_num_batched_tokens = 32;
  Service service(config, {.layout = KvLayout::uniform(4), .num_device_blocks = 1000});
  service.add(1, count_from(0, 8), 20, 0, {}, 30);
  for (int i = 0; i < 3; ++i) service.step();
  service.add(2, count_from(5000, 8), 4, 0, {}, 12);
  for (int i = 0; i < 5; ++i) service.step();
  EXPECT_EQ(service.tokens_of_steps.back(), 30);
  service.run();
  EXPECT_EQ(service.num_tokens[2], 12 * 4);
}

TEST_P(AtDepth, AHeadThatDoesNotFitStopsNobody) {
  SchedulerConfig config = this->config(256);
  config.max_num_batched_tokens = 384;
  config.max_chunk_us = 100'000;
  Service service(config, {.layout = KvLayout::uniform(32), .num_device_blocks = 64});
  service.token_us = 10'000;
  service.add(1, count_from(0, 1200), 50);
  service.add(2, count_from(5000, 1200), 50);
  service.run();
  EXPECT_EQ(service.finished, (std::vector<RequestId>{1, 2}));
}

TEST_P(AtDepth, AGroupThatFillsEveryRowGoesOnBesideAHeadThatDoesNotFit) {
  SchedulerConfig config = this->config(256);
  Service service(config, {.layout = KvLayout::uniform(4), .num_device_blocks = 1000});
  service.add(1, count_from(0, 8), 40, 0, {}, 250);
  service.add(2, count_from(5000, 3990), 4);
  service.run();
  EXPECT_EQ(service.num_tokens[1], 250 * 40);
  EXPECT_EQ(service.num_tokens[2], 4);
}

/// Returns the number of prompt tokens that request 2 computes when request 1 had the same prompt and adapter, and its
/// row has ended with an error.
std::int64_t computed_behind_a_row_with(ErrorCode code, std::int32_t pipeline_depth) {
  SchedulerConfig config = config_of(SchedulingPolicy::fcfs, 16);
  config.pipeline_depth = pipeline_depth;
  config.max_adapters = 1;
  Service service(config);
  constexpr AdapterId kAdapter = 7;
  service.add(1, count_from(0, 64), 8, 0, {}, 1, {}, kAdapter);
  EXPECT_TRUE(service.plan());
  service.row_error = Error{code, "the row has failed", {}, -1};
  while (service.has_steps()) service.complete();
  EXPECT_EQ(service.failed, std::vector<RequestId>{1});
  service.row_error.reset();
  service.add(2, count_from(0, 64), 1, 0, {}, 1, {}, kAdapter);
  const std::size_t before = service.tokens_of_steps.size();
  service.run();
  EXPECT_EQ(service.finished, std::vector<RequestId>{2});
  return std::accumulate(service.tokens_of_steps.begin() + static_cast<std::ptrdiff_t>(before),
                         service.tokens_of_steps.end(), std::int64_t{0});
}

TEST_P(AtDepth, BlocksOfARowWithoutItsAdapterLeaveThePrefixCache) {
  EXPECT_EQ(computed_behind_a_row_with(ErrorCode::bad_adapter, GetParam()), 64);
  EXPECT_EQ(computed_behind_a_row_with(ErrorCode::invalid_request, GetParam()), 4) << "60 tokens are right and cached";
}

/// Request 2 shares blocks that request 1 computes in a step that fails.
TEST(EarlySharing, AReaderOfAFailedStepIsComputedAnew) {
  SchedulerConfig config = config_of(SchedulingPolicy::fcfs, 16);
  config.pipeline_depth = 2;
  Service service(config);
  service.add(1, count_from(0, 20), 8);
  ASSERT_TRUE(service.plan());
  service.add(2, count_from(0, 20), 8);
  ASSERT_TRUE(service.plan());
  ASSERT_EQ(service.newest_step().work.back().num_tokens, 4) << "16 tokens are shared";
  service.complete(true);
  EXPECT_EQ(service.failed, std::vector<RequestId>{1});
  service.complete();
  EXPECT_TRUE(service.num_tokens.empty()) << "what request 2 sampled came of nothing";
  ASSERT_TRUE(service.plan());
  EXPECT_EQ(service.newest_step().work.front().num_tokens, 20);
  service.run();
  EXPECT_EQ(service.num_tokens[2], 8);
}

TEST(EarlySharing, AReaderOfTheFailedStepItselfFailsWithIt) {
  Service service(config_of(SchedulingPolicy::fcfs, 16));
  service.add(1, count_from(0, 20), 8);
  service.add(2, count_from(0, 20), 8);
  ASSERT_TRUE(service.plan());
  service.complete(true);
  EXPECT_EQ(service.failed, (std::vector<RequestId>{1, 2}));
  service.run();
  EXPECT_EQ(service.blocks_owned(), 0);
}

TEST(EarlySharing, AReaderIsNotAdmittedWhenTheWriterWasAbortedBetweenPlanAndAnswer) {
  Service service(config_of(SchedulingPolicy::fcfs, 16));
  service.add(1, count_from(0, 20), 8);
  service.add(2, count_from(0, 20), 8);
  const MemoryGrant plan = service.ask();
  ASSERT_EQ(plan.waiting[1].num_cached_tokens, 16);
  service.abort(1);
  service.answer(plan);
  EXPECT_TRUE(service.newest_step().work.empty());
  service.complete();
  ASSERT_TRUE(service.plan());
  EXPECT_EQ(service.newest_step().work.front().num_tokens, 20) << "nobody has computed the shared prompt";
  service.run();
  EXPECT_EQ(service.num_tokens[2], 8);
}

TEST(EarlySharing, AReaderGoesOnWhenTheWriterIsAbortedInFlight) {
  SchedulerConfig config = config_of(SchedulingPolicy::fcfs, 16);
  config.pipeline_depth = 2;
  Service service(config);
  service.add(1, count_from(0, 20), 8);
  ASSERT_TRUE(service.plan());
  service.abort(1);
  service.add(2, count_from(0, 20), 8);
  ASSERT_TRUE(service.plan());
  EXPECT_EQ(service.newest_step().work.front().num_tokens, 4);
  service.run();
  EXPECT_EQ(service.num_tokens[2], 8);
}

}  // namespace
}  // namespace pagoda::scheduling

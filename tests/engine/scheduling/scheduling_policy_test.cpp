#include <algorithm>
#include <limits>
#include <map>
#include <random>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "tests/engine/scheduling/queue_order.hpp"
#include "tests/engine/scheduling/service.hpp"

namespace pagoda::scheduling {
namespace {

constexpr TimeUs kSecond = 1'000'000;

QueueEntry entry(RequestId id, std::int64_t priority, std::string user = {}, TimeUs arrival_us = 0) {
  return {id, priority, std::move(user), 10, arrival_us};
}

TEST(WorkerCrashes, FailARequestThatRunsAloneInTheThirdAndLetTheOthersGoOn) {
  constexpr int kCrashes = 3;
  Service service(config_of(SchedulingPolicy::fcfs, 1));
  service.add(1, 8, 5);
  service.add(2, 8, 5);  // waits, because there is one row
  for (int i = 0; i < kCrashes; ++i) {
    EXPECT_TRUE(service.failed.empty());
    service.lose_worker();
  }
  EXPECT_EQ(service.failed, std::vector<RequestId>{1});
  service.run();
  EXPECT_EQ(service.finished, std::vector<RequestId>{2});
  EXPECT_EQ(service.stats().requests_failed_total, 1);
  EXPECT_EQ(service.stats().worker_restarts_total, kCrashes);
}

TEST(WorkerCrashes, OfWorkersThatAreKilledFromOutsideFailAndHoldBackNoRequest) {
  Service service(config_of(SchedulingPolicy::fcfs, 4));
  for (RequestId id = 1; id <= 3; ++id) service.add(id, 8, 30);
  for (int i = 0; i < 20; ++i) {
    service.step();
    service.lose_worker(/*crashes=*/false);
    EXPECT_FALSE(service.has_trial());
  }
  service.run();
  EXPECT_TRUE(service.failed.empty());
  for (RequestId id = 1; id <= 3; ++id) EXPECT_EQ(service.num_tokens[id], 30);
}

/// Makes workers crash whenever the prompt of request `poison` runs, until any request has failed. Returns the number
/// of crashes.
int let_workers_crash_of(RequestId poison, Service& service) {
  const auto runs_poison = [&] {
    return service.has_steps() && std::ranges::any_of(service.newest_step().new_rows, [&](const NewRow& row) {
             return row.spec.prompt->front() ==
                    static_cast<TokenId>(poison);  // every token of a prompt is its request's id
           });
  };
  const std::size_t num_failed = service.failed.size();
  for (int crashes = 0;; ++crashes) {
    if (service.failed.size() > num_failed || crashes > 20) return crashes;
    bool runs = service.plan();
    while (runs && !runs_poison()) {
      if (service.has_steps()) service.complete();
      runs = service.plan();
    }
    if (!runs) return -1;
    service.lose_worker();
  }
}

TEST(WorkerCrashes, AreFoundToBeOfOneOfThoseThatRanTogether) {
  Service service(config_of(SchedulingPolicy::fcfs, 8));
  for (RequestId id = 1; id <= 8; ++id) service.add(id, 8, 6);
  constexpr RequestId kPoison = 5;
  EXPECT_LE(let_workers_crash_of(kPoison, service), 6) << "two, three halves, and one alone";
  EXPECT_EQ(service.failed, std::vector<RequestId>{kPoison});
  service.add(9, 8, 6);
  service.run();
  EXPECT_EQ(service.finished.size(), 8U);
  EXPECT_EQ(service.blocks_owned(), 0);
}

TEST(WorkerCrashes, OfManyThatAreFoundFailNoneThatRanBesideThem) {
  constexpr RequestId kLong = 1;
  constexpr RequestId kPoisons = 32;
  Service service(config_of(SchedulingPolicy::fcfs, 2));
  service.add(kLong, 8, 400);
  for (int i = 0; i < 3; ++i) service.step();
  std::vector<RequestId> poisons;
  for (RequestId poison = kLong + 1; poison <= kLong + kPoisons; ++poison) {
    poisons.push_back(poison);
    service.add(poison, 8, 6);
    ASSERT_GT(let_workers_crash_of(poison, service), 0);
    ASSERT_EQ(service.failed, poisons);
  }
  service.run();
  EXPECT_EQ(service.finished, std::vector<RequestId>{kLong});
}

TEST(WorkerCrashes, AreNotBlamedOnTheOtherRequestOfAStepWhenTheCulpritHasEndedMeanwhile) {
  Service service(config_of(SchedulingPolicy::fcfs, 4));
  for (RequestId id = 1; id <= 4; ++id) service.add(id, 8, 30);
  for (int crash = 0; crash < 2; ++crash) {
    while (service.num_tokens[4] == 0) service.step();
    service.lose_worker();
  }
  ASSERT_TRUE(service.has_trial()) << "of requests 1 and 2";
  ASSERT_TRUE(service.plan());
  ASSERT_EQ(service.newest_step().work.size(), 2U);
  service.abort(2);  // request 2 may crash this step, although only request 1 is left
  service.lose_worker();
  EXPECT_TRUE(service.failed.empty());
  service.run();
  EXPECT_EQ(service.finished, (std::vector<RequestId>{1, 3, 4}));
}

TEST(WorkerCrashes, OfNoRequestInParticularFailNone) {
  Service service(config_of(SchedulingPolicy::fcfs, 4));
  for (RequestId id = 1; id <= 3; ++id) service.add(id, 8, 30, 0, {}, 2);
  int crashes = 0;
  for (; service.finished.size() < 6; ++crashes) {
    for (int i = 0; i < 9; ++i) service.step();  // suspected requests are tried meanwhile
    if (service.finished.size() < 6) service.lose_worker();
    ASSERT_LT(crashes, 100);
  }
  EXPECT_GT(crashes, 4);
  service.run();
  EXPECT_TRUE(service.failed.empty());
  EXPECT_EQ(service.finished.size(), 6U);
}

TEST(WorkerCrashes, OthersRunOnWhileTheCulpritIsLookedFor) {
  Service service(config_of(SchedulingPolicy::fcfs, 32));
  for (RequestId id = 1; id <= 16; ++id) service.add(id, 8, 200);
  for (int i = 0; i < 4; ++i) service.step();
  for (int crash = 0; crash < 2; ++crash) {
    service.lose_worker();
    service.step();
  }
  ASSERT_TRUE(service.has_trial());
  for (RequestId id = 101; id <= 108; ++id) service.add(id, 8, 200);
  std::map<RequestId, int> before = service.num_tokens;
  service.step();
  service.step();
  int running = 0;
  for (auto& [id, tokens] : service.num_tokens) running += tokens > before[id] ? 1 : 0;
  EXPECT_GE(running, 16) << "half of those that ran, and all that have come since";
}

TEST(WorkerCrashes, OfAPromptAreFoundWithTheThirdAndLetOthersRunOnBetweenThem) {
  Service service(config_of(SchedulingPolicy::fcfs, 32));
  for (RequestId id = 1; id <= 16; ++id) service.add(id, 8, 400);
  for (int i = 0; i < 4; ++i) service.step();
  constexpr RequestId kPoison = 17;
  service.add(kPoison, 8, 400);
  const std::map<RequestId, int> before = service.num_tokens;
  EXPECT_EQ(let_workers_crash_of(kPoison, service), 3);
  EXPECT_EQ(service.failed, std::vector<RequestId>{kPoison});
  for (const auto& [id, tokens] : before) EXPECT_GE(service.num_tokens[id], tokens + 6) << "twice three steps";
}

TEST(WorkerCrashes, EndARestOfSuspectsWhenNoOtherRequestIsLeft) {
  Service service(config_of(SchedulingPolicy::fcfs, 4));
  service.add(1, 8, 5);
  service.step();
  service.add(2, 8, 30);
  ASSERT_TRUE(service.plan());
  ASSERT_EQ(service.newest_step().work.size(), 2U);
  service.now += 1000 * kSecond;  // the crash costs so long
  service.lose_worker();
  EXPECT_TRUE(service.has_trial());
  service.run();
  EXPECT_EQ(service.finished, (std::vector<RequestId>{1, 2}));
  EXPECT_LT(service.now, 2000 * kSecond);
}

TEST(WorkerCrashes, LetARequestThatIsClearedPauseWhileAnotherIsOnTrialAlone) {
  Service service(config_of(SchedulingPolicy::fcfs, 8));
  service.add(1, 8, 200);
  service.add(2, 8, 200);
  for (int crash = 0; crash < 2; ++crash) {
    for (int i = 0; i < 4; ++i) service.step();
    service.lose_worker();
  }
  ASSERT_TRUE(service.has_trial());
  std::map<RequestId, int> alone;  // steps in which a request alone got a token
  while (service.has_trial()) {
    const std::map<RequestId, int> before = service.num_tokens;
    service.step();
    const bool first = service.num_tokens[1] > before.at(1);
    const bool second = service.num_tokens[2] > before.at(2);
    EXPECT_FALSE(first && second && service.has_trial());
    if (first != second) ++alone[first ? 1 : 2];
    ASSERT_LT(alone[1] + alone[2], 200);
  }
  EXPECT_GT(alone[1], 0);
  EXPECT_GT(alone[2], 0);
  ASSERT_LT(service.num_tokens[1], 150) << "the first runs on beside the second";
  service.run();
  EXPECT_EQ(service.finished.size(), 2U);
}

TEST(Interruptions, AreToldOnceForAllSequencesOfARequest) {
  Service service(config_of(SchedulingPolicy::fcfs, 8));
  service.add(1, 8, 20, 0, {}, 3);
  service.add(2, 8, 20);
  for (int i = 0; i < 5; ++i) service.step();
  service.lose_worker();
  service.add(3, 8, 20);  // has never run on a lost worker
  service.step();
  service.lose_worker();
  service.run();
  EXPECT_EQ(service.num_restarts, (std::map<RequestId, int>{{1, 2}, {2, 2}, {3, 1}}));
  EXPECT_TRUE(service.num_preemptions.empty());
}

TEST(Interruptions, OfARequestThatGivesWayAreItsPreemptions) {
  // 10 blocks of 4 tokens; at their end both requests need 8.
  for (const PreemptionPolicy policy : {PreemptionPolicy::recompute, PreemptionPolicy::swap}) {
    SchedulerConfig config = config_of(SchedulingPolicy::fcfs);
    config.preemption = policy;
    config.can_swap = true;
    Service service(config, {.layout = KvLayout::uniform(4), .num_device_blocks = 10, .num_host_blocks = 10});
    service.add(1, 12, 20);
    service.add(2, 12, 20);
    service.run();
    ASSERT_EQ(service.finished.size(), 2U);
    const EngineStats stats = service.stats();
    EXPECT_EQ(service.num_preemptions.size(), 1U) << "the first never gives way";
    EXPECT_GE(service.num_preemptions[2], 1);
    EXPECT_EQ(service.num_preemptions[2], stats.preemptions_recompute_total + stats.preemptions_swap_total);
    EXPECT_EQ(stats.preemptions_swap_total > 0, policy == PreemptionPolicy::swap);
    EXPECT_TRUE(service.num_restarts.empty());
  }
}

TEST(PriorityQueue, WithoutAgingPrioritiesAreStrict) {
  const auto queue = make_waiting_queue(SchedulingPolicy::priority);
  queue->push(entry(1, 5, "", 0));
  queue->push(entry(2, 0, "", 1'000'000 * kSecond));
  queue->push(entry(3, 5, "", 1));
  EXPECT_EQ(order(*queue), (std::vector<RequestId>{2, 1, 3}));
}

TEST(PriorityQueue, WaitingLongEnoughOvertakesABetterPriority) {
  const auto queue = make_waiting_queue(SchedulingPolicy::priority, 10);
  queue->push(entry(1, 2, "", 0));
  queue->push(entry(2, 0, "", 19 * kSecond));  // has not waited long enough
  queue->push(entry(3, 0, "", 21 * kSecond));
  queue->push(entry(4, 1, "", 0));
  EXPECT_EQ(order(*queue), (std::vector<RequestId>{4, 2, 1, 3}));
  EXPECT_TRUE(queue->runs_before(entry(1, 2, "", 0), entry(3, 0, "", 21 * kSecond)));
  queue->erase(entry(2, 0, "", 19 * kSecond));
  EXPECT_EQ(queue->size(), 3U);
}

TEST(PriorityQueue, TheWidestPrioritiesAndTheLongestIntervalDoNotOverflow) {
  const auto queue = make_waiting_queue(SchedulingPolicy::priority, kMaxAgingSeconds);
  queue->push(entry(1, std::numeric_limits<std::int64_t>::max()));
  queue->push(entry(2, std::numeric_limits<std::int64_t>::max() - 1));
  queue->push(entry(3, std::numeric_limits<std::int64_t>::min()));
  EXPECT_EQ(order(*queue), (std::vector<RequestId>{3, 2, 1}));
}

TEST(FairQueue, AVisitMayVisitTheQueueInTurn) {
  const auto queue = make_waiting_queue(SchedulingPolicy::fair);
  for (RequestId id = 1; id <= 3; ++id) queue->push(entry(id, 0, std::string(1, static_cast<char>('a' + id))));
  queue->charge(entry(2, 0, "c"), 5);
  std::vector<RequestId> visited;
  queue->visit_in_order([&](RequestId id) {
    visited.push_back(id);
    EXPECT_EQ(order(*queue), (std::vector<RequestId>{1, 3, 2}));
    return true;
  });
  EXPECT_EQ(visited, (std::vector<RequestId>{1, 3, 2}));
}

TEST(FairQueue, OneRequestOfATenantComesNextBehindAHundredOfAnother) {
  const auto queue = make_waiting_queue(SchedulingPolicy::fair);
  for (RequestId id = 1; id <= 100; ++id) queue->push(entry(id, 0, "many"));
  queue->charge(entry(1, 0, "many"), 500);
  queue->push(entry(101, 0, "one"));
  EXPECT_EQ(order(*queue)[1], 101U) << "lifted to the other's counter, it is second at worst";
}

TEST(Scheduling, AStreamOfBetterPrioritiesDoesNotStarveAWorseOne) {
  for (const bool aging : {false, true}) {
    SchedulerConfig config = config_of(SchedulingPolicy::priority, 2);
    config.priority_aging_s = aging ? 0.1 : 0;
    Service service(config);
    RequestId id = 0;
    service.add(++id, 4, 10, 1);
    service.add(++id, 4, 10, 1);
    service.add(++id, 4, 10, 1);
    const RequestId last = id;
    for (int i = 0; i < 300; ++i) {
      service.add(++id, 4, 10, 0);
      for (int k = 0; k < 5; ++k) service.step();  // a request every 5 ms, as fast as two rows can serve
    }
    const bool served = std::ranges::find(service.finished, last) != service.finished.end();
    EXPECT_EQ(served, aging);
  }
}

TEST(Scheduling, WithADelayFactorPromptsGatherWhileOthersRun) {
  const auto steps_until_started = [](double factor) {
    SchedulerConfig config = config_of(SchedulingPolicy::fcfs);
    config.delay_factor = factor;
    Service service(config);
    service.add(1, 8, 100);
    EXPECT_TRUE(service.step());  // runs at once, because nothing else runs; the step takes 1 ms
    service.add(2, 8, 1);
    int steps = 0;
    while (service.started.size() < 2) {
      service.step();
      ++steps;
    }
    return steps;
  };
  EXPECT_EQ(steps_until_started(0), 1);
  EXPECT_EQ(steps_until_started(3), 5) << "it must have waited for more than 3 ms";
}

TEST(Scheduling, ADelayedPromptStartsWhenNothingRunsAnyMore) {
  SchedulerConfig config = config_of(SchedulingPolicy::fcfs);
  config.delay_factor = 1e6;
  Service service(config);
  service.add(1, 8, 3);
  service.step();
  service.add(2, 8, 3);
  service.run();
  EXPECT_EQ(service.finished, (std::vector<RequestId>{1, 2}));
}

/// Returns the tokens of the step that begins a prompt of 500 while others decode, when a step takes 100 ms and a
/// millisecond for each of its tokens.
std::int64_t tokens_of_a_mixed_step(TimeUs max_chunk_us, int num_decoding, bool chunked = true,
                                    double max_stretch = 0) {
  SchedulerConfig config = config_of(SchedulingPolicy::fcfs, 64);
  config.max_chunk_us = max_chunk_us;
  config.max_stretch = max_stretch;
  config.max_num_batched_tokens = 600;
  config.enable_chunked_prefill = chunked;
  Service service(config);
  service.step_us = 100'000;
  service.token_us = 1000;
  service.add(2000, 600, 1);
  service.step();
  EXPECT_EQ(service.tokens_of_steps.back(), 600) << "nobody decodes";
  for (RequestId id = 1; id <= static_cast<RequestId>(num_decoding); ++id) service.add(id, 8, 100);
  for (int i = 0; i < 10; ++i) service.step();
  EXPECT_EQ(service.tokens_of_steps.back(), num_decoding);
  service.add(1000, 500, 1);
  service.step();
  return service.tokens_of_steps.back();
}

TEST(Scheduling, PromptsTakeALimitedTimeOfAStepInWhichOthersDecode) {
  EXPECT_EQ(tokens_of_a_mixed_step(0, 20), 520) << "no limit";
  EXPECT_NEAR(static_cast<double>(tokens_of_a_mixed_step(100'000, 20)), 120, 10)
      << "what every step takes does not count";
  EXPECT_EQ(tokens_of_a_mixed_step(1'000, 30), 30 + kMinChunk);
  EXPECT_EQ(tokens_of_a_mixed_step(1'000, 60), 60 + 60 / (kPromptShare - 1) + 1) << "nobody pauses";
  EXPECT_EQ(tokens_of_a_mixed_step(1'000, 3), kMinBatch);
  EXPECT_EQ(tokens_of_a_mixed_step(1'000'000, 20), 520) << "all in time";
  EXPECT_NEAR(static_cast<double>(tokens_of_a_mixed_step(1'000'000, 20, true, 2)), 90, 15)
      << "20 decodes take 120 ms, so 200 ms have room for being late";
  EXPECT_EQ(tokens_of_a_mixed_step(1'000, 20, false), 500) << "without chunks prompts run whole, in steps of their own";
}

TEST(Scheduling, ASwappedGroupComesBackBesideDecodesHoweverLittleTimePromptsGet) {
  SchedulerConfig config = config_of(SchedulingPolicy::fcfs, 64);
  config.max_chunk_us = 1;
  config.can_swap = true;
  config.preemption = PreemptionPolicy::swap;
  // 18 short decodes, 2 long ones and 40 sequences of one request exceed the pool together; without the short ones they
  // fit.
  Service service(config, {.layout = KvLayout::uniform(4),
                           .num_device_blocks = 200,
                           .num_host_blocks = 400,
                           .enable_prefix_caching = false});
  for (RequestId id = 1; id <= 20; ++id) service.add(id, 4, id <= 18 ? 16 : 200);
  service.add(21, 4, 12, 0, {}, 40);
  while (service.stats().preemptions_swap_total == 0) ASSERT_TRUE(service.step());
  while (service.place_of(21) == service.finished.size()) ASSERT_TRUE(service.step());
  EXPECT_EQ(service.place_of(19), service.finished.size()) << "it did not wait for the end of the long decodes";
}

TEST(StepTimes, TellWhatOneMoreTokenCostsFromStepsOfDifferentSizes) {
  StepTimes times;
  EXPECT_EQ(times.us_per_token(), 0);
  times.step_measured(10, 2000);
  EXPECT_NEAR(times.us_per_token(), 200, 1e-9) << "one size tells the average";
  for (int i = 0; i < 50; ++i) times.step_measured(i % 2 == 0 ? 16 : 128, 1000 + 5 * (i % 2 == 0 ? 16 : 128));
  EXPECT_NEAR(times.us_per_token(), 5, 1);
  for (int i = 0; i < 200; ++i) times.step_measured(16, 1080);
  EXPECT_NEAR(times.us_per_token(), 1080.0 / 16, 4) << "what is long ago fades";
  for (int i = 0; i < 50; ++i) times.step_measured(i % 2 == 0 ? 16 : 128, 1000);
  EXPECT_GT(times.us_per_token(), 0) << "no token is free";
  times.step_measured(0, 5);
  times.step_measured(5, 0);
  EXPECT_GT(times.us_per_token(), 0);
}

/// Steps take 20 ms, and 5 ms for each of their tokens: 16 tokens in 100 ms, or 12 with the reserve that is kept at
/// first for steps that take longer than others of their size.
struct ServiceWithTarget : Service {
  explicit ServiceWithTarget(TimeUs target_us, std::int32_t pipeline_depth = 1)
      : Service(config_with(target_us, pipeline_depth)) {
    step_us = 20'000;
    token_us = 5000;
  }

  static SchedulerConfig config_with(TimeUs target_us, std::int32_t pipeline_depth) {
    SchedulerConfig config = config_of(SchedulingPolicy::fcfs, 64);
    config.target_step_us = target_us;
    config.pipeline_depth = pipeline_depth;
    return config;
  }
};

TEST(Scheduling, ATargetOfStepsBoundsWhatDecodesAndWhatPromptsAdd) {
  for (const std::int32_t depth : {1, 2}) {
    ServiceWithTarget service(100'000, depth);
    for (RequestId id = 1; id <= 60; ++id) service.add(id, 40, 30);
    service.run();
    EXPECT_EQ(service.finished.size(), 60U);
    const auto& steps = service.tokens_of_steps;
    EXPECT_EQ(steps.front(), 40) << "nobody decodes";
    const auto learned = std::next(steps.begin(), 30);
    EXPECT_LE(*std::max_element(learned, steps.end()), 17);
    const auto last_begun = std::prev(steps.end(), 30);
    EXPECT_GE(std::count_if(learned, last_begun, [](std::int64_t tokens) { return tokens >= 11; }),
              9 * std::distance(learned, last_begun) / 10)
        << "the time is used";
  }
}

TEST(Scheduling, NobodyPausesForAPromptUnderATarget) {
  ServiceWithTarget service(100'000);
  for (RequestId id = 1; id <= 9; ++id) service.add(id, 8, 400);
  for (int i = 0; i < 60; ++i) service.step();
  EXPECT_EQ(service.tokens_of_steps.back(), 9);
  service.add(10, 500, 1);
  while (!service.first_token_in.contains(10)) {
    ASSERT_TRUE(service.plan());
    EXPECT_EQ(service.newest_step().work.size(), 10U);
    service.complete();
    EXPECT_LE(service.tokens_of_steps.back(), 17);
  }
}

TEST(Scheduling, ATargetThatNoStepKeepsStopsNobody) {
  for (const std::int32_t n : {1, 4}) {
    ServiceWithTarget service(1);
    for (RequestId id = 1; id <= 5; ++id) service.add(id, 8, 5, 0, {}, n);
    service.run();
    EXPECT_EQ(service.finished.size(), 5U * static_cast<std::size_t>(n));
    EXPECT_EQ(service.first_token_in.size(), 5U);
    EXPECT_GE(service.num_steps, 5 * 5) << "one after the other";
  }
}

TEST(StepTimeCurve, TellsTheLargestStepThatFits) {
  StepTimeCurve curve;
  EXPECT_EQ(curve.tokens_within(1e9), 0);
  curve.step_measured(8, 60'000);
  EXPECT_NEAR(curve.tokens_within(30'000), 4, 1e-9) << "below, as if tokens were all it takes";
  EXPECT_NEAR(curve.tokens_within(120'000), 16, 1e-9) << "and beyond";
  curve.step_measured(32, 180'000);
  EXPECT_NEAR(curve.tokens_within(120'000), 20, 1e-9);
  for (int i = 0; i < 1000; ++i) curve.step_measured(1, 25'000);
  EXPECT_NEAR(curve.tokens_within(120'000), 20, 1e-9) << "other sizes are not forgotten";
  EXPECT_NEAR(curve.tokens_within(25'000), 1, 1e-9);
  for (int i = 0; i < 50; ++i) curve.step_measured(8, 90'000);
  EXPECT_NEAR(curve.tokens_within(90'000), 8, 1e-3) << "what is long ago fades";
  curve.step_measured(64, 10);
  EXPECT_NEAR(curve.tokens_within(180'000), 64, 1e-9) << "more tokens never take less";
  curve.step_measured(0, 5);
  curve.step_measured(1 << 20, 0);
  EXPECT_NEAR(curve.tokens_within(180'000), 64, 1e-9);
}

TEST(StepTimeCurve, TellsWhatAStepTakes) {
  StepTimeCurve curve;
  EXPECT_EQ(curve.us_of(8), 0);
  curve.step_measured(8, 60'000);
  EXPECT_NEAR(curve.us_of(4), 60'000, 1e-9) << "below, as if only the weights were read";
  EXPECT_NEAR(curve.us_of(16), 120'000, 1e-9) << "and beyond";
  curve.step_measured(32, 180'000);
  EXPECT_NEAR(curve.us_of(20), 120'000, 1e-9);
  for (const int tokens : {8, 17, 32, 50}) EXPECT_NEAR(curve.tokens_within(curve.us_of(tokens)), tokens, 1e-9);
}

TEST(StepTimeCurve, SizesThatWereNotMeasuredAreExpectedToGoOnAsSmallerOnes) {
  StepTimeCurve curve;
  const auto measure = [&](std::int64_t tokens, TimeUs us) {
    for (int i = 0; i < 4; ++i) curve.step_measured(tokens, us);
  };
  EXPECT_EQ(curve.expected_us_of(4), 0);
  measure(1, 1000);
  EXPECT_EQ(curve.expected_us_of(1), 1000);
  EXPECT_EQ(curve.expected_us_of(16), 1000) << "to be tried";
  EXPECT_EQ(curve.expected_us_of(17), std::numeric_limits<double>::infinity()) << "not yet";
  measure(512, 900'000);
  EXPECT_EQ(curve.expected_us_of(4), 1000) << "far larger steps say nothing of these";
  measure(2, 1100);
  EXPECT_EQ(curve.expected_us_of(2), 1100);
  EXPECT_EQ(curve.expected_us_of(4), 1300);
  EXPECT_EQ(curve.expected_us_of(8), 1700);
  measure(8, 5000);
  EXPECT_EQ(curve.expected_us_of(5), 3050) << "between those that are known";
}

TEST(StepTimeCurve, AFirstStepThatIsSlowIsForgotten) {
  StepTimeCurve curve;
  curve.step_measured(4, 9000);
  for (int i = 0; i < 3; ++i) curve.step_measured(4, 1000);
  EXPECT_EQ(curve.expected_us_of(4), 1000);
}

TEST(StepTimeCurve, ForgetsASlowSpellOfSizesThatAreNotRunAnyMore) {
  StepTimeCurve curve;
  for (const int tokens : {8, 16, 32, 64}) curve.step_measured(tokens, 100'000 * tokens);
  for (int i = 0; i < 4000; ++i) curve.step_measured(8, 8'000);
  EXPECT_LT(curve.tokens_within(64'000), 16) << "still remembered";
  for (int i = 0; i < 200; ++i) curve.step_measured(8, 8'000);
  EXPECT_NEAR(curve.tokens_within(64'000), 64, 1e-6);
  curve.step_measured(64, 50'000);
  EXPECT_NEAR(curve.us_of(64), 50'000, 1e-9) << "measured as if for the first time";
}

TEST(StepLateness, IsWhatAllButAFewStepsStayBelow) {
  std::mt19937 random(1);
  for (const double spread : {0.0, 0.1, 0.25}) {
    std::normal_distribution<double> noise(1, spread);
    StepLateness lateness;
    int late = 0;
    constexpr int kWarmUp = 2'000;
    constexpr int kSteps = 100'000;
    for (int i = 0; i < kWarmUp + kSteps; ++i) {
      const double times = noise(random);
      late += i >= kWarmUp && times > lateness.factor_of_mean() ? 1 : 0;
      lateness.step_measured(50'000, static_cast<TimeUs>(50'000 * std::max(times, 0.01)));
    }
    EXPECT_LE(late, kSteps / 100) << spread;
    EXPECT_GE(lateness.factor_of_mean(), 1 + spread);
    EXPECT_LE(lateness.factor_of_mean(), 1 + 4 * spread);
  }
  StepLateness lateness;
  for (int i = 0; i < 1'000; ++i) lateness.step_measured(1, 1'000'000);
  EXPECT_EQ(lateness.factor_of_mean(), 2) << "a machine that stands still is no reason to do nothing";
  lateness.step_measured(0, 1);
  EXPECT_EQ(lateness.factor_of_mean(), 2);
}

TEST(Scheduling, AutomaticPreemptionTakesWhatWasMeasuredToCostLess) {
  for (const bool fast_swaps : {false, true}) {
    SchedulerConfig config = config_of(SchedulingPolicy::fcfs);
    config.can_swap = true;
    config.block_bytes = 4096;
    config.preemption = PreemptionPolicy::automatic;
    Service service(config, {.layout = KvLayout::uniform(4), .num_device_blocks = 16, .num_host_blocks = 64});
    service.swap_measured(1'000'000, fast_swaps ? 100 : 10'000'000);
    for (RequestId id = 1; id <= 4; ++id) service.add(id, 8, 40);  // 12 blocks each at their end
    service.run();
    EXPECT_EQ(service.finished.size(), 4U);
    const EngineStats stats = service.stats();
    EXPECT_EQ(stats.preemptions_swap_total > 0, fast_swaps);
    EXPECT_EQ(stats.preemptions_recompute_total > 0, !fast_swaps);
    EXPECT_EQ(stats.swap_bytes_total, 1'000'000);
    EXPECT_DOUBLE_EQ(stats.swap_bytes_per_s, fast_swaps ? 1e10 : 1e5);
  }
}

}  // namespace
}  // namespace pagoda::scheduling

// Tests all actors of an engine over a fake device, without a model: their behaviour when others die, drain or fail.

#include "tests/actors/engine_of_fakes.hpp"

#include <random>
#include <thread>

namespace pagoda::actors {
namespace {

using namespace std::chrono_literals;
using fakes::EngineOfFakes;
using fakes::kBlockSize;

TEST_F(EngineOfFakes, ServesMoreThanItsMemoryHoldsBySwapping) {
  constexpr std::int64_t kTokens = 60;
  for (std::uint64_t tag = 1; tag <= 12; ++tag) ASSERT_TRUE(submit(tag, kTokens));
  ASSERT_TRUE(received_->wait_for(12));
  for (std::uint64_t tag = 1; tag <= 12; ++tag) expect_right(tag, kTokens);
  const auto stats = ask<EngineStats>(shared_.router, GetStats{});
  EXPECT_GT(stats.preemptions_swap_total, 0);
  // Sequences of one request that are preempted together count as one preemption of the request.
  EXPECT_GT(sum_of(&Timing::preemptions), 0);
  EXPECT_LE(sum_of(&Timing::preemptions), stats.preemptions_swap_total + stats.preemptions_recompute_total);
  EXPECT_EQ(sum_of(&Timing::restarts), 0);
}

TEST_F(EngineOfFakes, WorkersAndCacheEnginesMayDieAtAnyTimeAndNoTokenChanges) {
  constexpr std::int64_t kTokens = 60;
  std::mt19937_64 random(5);
  std::uint64_t tag = 0;
#ifdef __SANITIZE_THREAD__
  constexpr int kRounds = 20;  // each takes seconds
#else
  constexpr int kRounds = 120;
#endif
  int killed_at_work = 0;
  runners_->step_us = 50;
  for (int round = 0; round < kRounds; ++round) {
    const std::uint64_t first = tag + 1;
    for (int i = 0; i < 8; ++i) ASSERT_TRUE(submit(++tag, kTokens));
    std::this_thread::sleep_for(std::chrono::microseconds(random() % 4000));
    {
      const std::lock_guard lock(received_->mutex);
      killed_at_work += received_->ends.size() < tag ? 1 : 0;
    }
    // Kills one actor in each round: rows of the round before may cost a request a second device, but not more.
    const Replica now = replica();
    if (random() % 2 == 0) {
      caf::anon_send_exit(now.devices.workers.at(0), caf::exit_reason::kill);
    } else {
      caf::anon_send_exit(now.devices.cache_engines.at(0), caf::exit_reason::kill);
    }
    ASSERT_TRUE(received_->wait_for(tag)) << "round " << round;
    for (std::uint64_t one = first; one <= tag; ++one) expect_right(one, kTokens);
  }
  EXPECT_GT(ask<EngineStats>(shared_.router, GetStats{}).worker_restarts_total, kRounds / 2);
  EXPECT_GT(killed_at_work, kRounds / 2);
  EXPECT_GT(sum_of(&Timing::restarts), kRounds / 2);
}

class EngineOfFakeProcesses : public EngineOfFakes {
 protected:
  EngineOfFakeProcesses() : EngineOfFakes({.devices = Devices::processes}) {}

  std::int64_t num_recomputed() {
    return ask<metrics::EngineMetrics>(shared_.router, GetMetrics{}).steps.recomputed_tokens;
  }
  void fail_process(bool memory_lost, bool without_progress = false) {
    const auto process = caf::actor_cast<DeviceKeeperActor>(replica().devices.workers.at(0));
    send_anonymously(
        process,
        DeviceFailed{{ErrorCode::device_failed, "it was killed"}, without_progress, memory_lost, ProcessEnd::died});
  }
};

TEST_F(EngineOfFakeProcesses, MemoryThatOutlivesThemIsGoneOnWithAndNoTokenChanges) {
  constexpr std::int64_t kTokens = 60;
  std::mt19937_64 random(6);
  std::uint64_t tag = 0;
#ifdef __SANITIZE_THREAD__
  constexpr int kRounds = 20;  // each takes seconds
#else
  constexpr int kRounds = 120;
#endif
  runners_->step_us = 50;
  int lost = 0;
  for (int round = 0; round < kRounds; ++round) {
    const std::uint64_t first = tag + 1;
    for (int i = 0; i < 8; ++i) ASSERT_TRUE(submit(++tag, kTokens));
    std::this_thread::sleep_for(std::chrono::microseconds(random() % 4000));
    const bool memory_lost = random() % 4 == 0;
    lost += memory_lost ? 1 : 0;
    fail_process(memory_lost);
    ASSERT_TRUE(received_->wait_for(tag)) << "round " << round;
    for (std::uint64_t one = first; one <= tag; ++one) expect_right(one, kTokens);
  }
  EXPECT_EQ(times_lost_, lost);
  const auto stats = ask<EngineStats>(shared_.router, GetStats{});
  EXPECT_EQ(stats.worker_restarts_total, kRounds);
  EXPECT_GT(stats.preemptions_swap_total, kRounds) << "plans must be under way where processes die";
}

TEST_F(EngineOfFakeProcesses, OnlyWhatIsInNoFullBlockIsComputedAgain) {
  runners_->step_us = 500;
  for (std::uint64_t tag = 4; tag <= 12; tag += 4) ASSERT_TRUE(submit(tag, 80));  // with one sequence each
  const auto wait_for_tokens = [&](std::int64_t count) {
    while (ask<EngineStats>(shared_.router, GetStats{}).generation_tokens_total < count) {
      std::this_thread::sleep_for(1ms);
    }
  };
  wait_for_tokens(100);
  fail_process(false);
  ASSERT_TRUE(received_->wait_for(3));
  for (std::uint64_t tag = 4; tag <= 12; tag += 4) expect_right(tag, 80);
  EXPECT_LE(num_recomputed(), 3 * (kBlockSize + 2)) << "a block and what was in flight, for each";
}

// A client may send a request that kills workers as often as it likes.
TEST_F(EngineOfFakeProcesses, TheEngineOutlivesAnyNumberOfThemThatDoNothing) {
  constexpr int kDeaths = 15;
  for (int deaths = 1; deaths <= kDeaths; ++deaths) {
    fail_process(false, true);
    while (ask<EngineStats>(shared_.router, GetStats{}).worker_restarts_total < deaths)
      std::this_thread::sleep_for(1ms);
  }
  ASSERT_TRUE(submit(1, 20));
  ASSERT_TRUE(received_->wait_for(1));
  expect_right(1, 20);
}

TEST_F(EngineOfFakeProcesses, OneThatEndsWithoutAWordLeavesMemoryThatNobodyTrusts) {
  runners_->step_us = 500;
  for (std::uint64_t tag = 1; tag <= 8; ++tag) ASSERT_TRUE(submit(tag, 80));
  caf::anon_send_exit(replica().devices.workers.at(0), caf::exit_reason::kill);
  ASSERT_TRUE(received_->wait_for(8));
  for (std::uint64_t tag = 1; tag <= 8; ++tag) expect_right(tag, 80);
  EXPECT_EQ(times_lost_, 1);
}

TEST_F(EngineOfFakes, ADrainEndsWhatIsLiveAndRefusesWhatComes) {
  for (std::uint64_t tag = 1; tag <= 5; ++tag) ASSERT_TRUE(submit(tag, 40));
  EXPECT_EQ(ask<Drained>(shared_.router, Drain{60'000}).aborted, 0);
  ASSERT_TRUE(received_->wait_for(5));
  for (std::uint64_t tag = 1; tag <= 5; ++tag) expect_right(tag, 40);
  const auto refused = submit(9, 5);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::shutting_down);
}

TEST_F(EngineOfFakes, ADrainWaitsForAWorkerThatIsReplacedUnderIt) {
  runners_->step_us = 1000;
  for (std::uint64_t tag = 1; tag <= 5; ++tag) ASSERT_TRUE(submit(tag, 100));
  caf::anon_send_exit(replica_.devices.workers.at(0), caf::exit_reason::kill);
  EXPECT_EQ(ask<Drained>(shared_.router, Drain{60'000}).aborted, 0);
  ASSERT_TRUE(received_->wait_for(5));
  for (std::uint64_t tag = 1; tag <= 5; ++tag) expect_right(tag, 100);
  EXPECT_EQ(ask<EngineStats>(shared_.router, GetStats{}).worker_restarts_total, 1);
}

TEST_F(EngineOfFakes, WhenTheBlockManagerDiesWhoeverWaitsIsTold) {
  runners_->step_us = 2000;
  for (std::uint64_t tag = 1; tag <= 5; ++tag) ASSERT_TRUE(submit(tag, 150));
  caf::anon_send_exit(replica_.block_manager, caf::exit_reason::kill);
  ASSERT_TRUE(received_->wait_for(5));
  caf::scoped_actor self{*system_};
  self->wait_for(supervisor_);
  int num_errors = 0;
  for (const auto& [tag, end] : received_->ends) num_errors += end.error ? 1 : 0;
  EXPECT_GT(num_errors, 0);
  const auto refused = submit(9, 5);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().message, "an actor of the engine has ended");
}

TEST_F(EngineOfFakes, WhenTheOutputProcessorDiesRequestsOnTheirWayToItAreToldToo) {
  runners_->step_us = 2000;
  std::size_t num_taken = 0;
  for (std::uint64_t tag = 1; tag <= 5; ++tag) num_taken += submit(tag, 150) ? 1 : 0;
  caf::anon_send_exit(shared_.outputs, caf::exit_reason::kill);
  for (std::uint64_t tag = 6; tag <= 30; ++tag) num_taken += submit(tag, 150) ? 1 : 0;
  ASSERT_TRUE(received_->wait_for(num_taken));
  caf::scoped_actor self{*system_};
  self->wait_for(supervisor_);
  for (const auto& [tag, end] : received_->ends) {
    EXPECT_EQ(received_->num_ends.at(tag), 1);
    EXPECT_TRUE(end.error) << "request " << tag;
  }
  const auto refused = submit(31, 5);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().message, "an actor of the engine has ended");
}

TEST_F(EngineOfFakes, AWorkerThatCannotBeReplacedEndsTheEngineWithItsReason) {
  runners_->step_us = 2000;
  for (std::uint64_t tag = 1; tag <= 5; ++tag) ASSERT_TRUE(submit(tag, 150));
  no_more_workers_[0] = true;
  caf::anon_send_exit(replica_.devices.workers.at(0), caf::exit_reason::kill);
  ASSERT_TRUE(received_->wait_for(5));
  caf::scoped_actor self{*system_};
  self->wait_for(supervisor_);
  const std::string health = ask<EngineStats>(shared_.router, GetStats{}).health;
  EXPECT_NE(health.find("no memory for another runner"), std::string::npos) << health;
}

TEST_F(EngineOfFakes, AnExitEndsEveryActorAndTellsEveryRequest) {
  runners_->step_us = 2000;
  for (std::uint64_t tag = 1; tag <= 5; ++tag) ASSERT_TRUE(submit(tag, 150));
  const Replica now = replica();
  caf::anon_send_exit(supervisor_, caf::exit_reason::user_shutdown);
  caf::scoped_actor self{*system_};
  self->wait_for(supervisor_, running_.replicas.at(0).supervisor, shared_.router, shared_.tokenizer, shared_.outputs,
                 now.scheduler, now.block_manager, now.devices.workers.at(0), now.devices.cache_engines.at(0));
  ASSERT_TRUE(received_->wait_for(5));
  for (const auto& [tag, count] : received_->num_ends) EXPECT_EQ(count, 1);
}

}  // namespace
}  // namespace pagoda::actors

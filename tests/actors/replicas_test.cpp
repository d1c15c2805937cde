// Tests an engine of several replicas, and one of several ranks, over fake devices.

#include <algorithm>
#include <atomic>
#include <functional>
#include <future>
#include <optional>
#include <random>
#include <set>
#include <thread>

#include "tests/actors/engine_of_fakes.hpp"

namespace pagoda::actors {
namespace {

using namespace std::chrono_literals;
using fakes::EngineOfFakes;
using fakes::kDeviceBlocks;

/// Calls `is_true` until it returns true; returns false after a minute.
template <class Condition>
bool comes_true(Condition is_true) {
  for (int i = 0; i < 60'000; ++i) {
    if (is_true()) return true;
    std::this_thread::sleep_for(1ms);
  }
  return false;
}

class SeveralDevices : public EngineOfFakes {
 protected:
  using EngineOfFakes::EngineOfFakes;

  EngineStats stats() { return ask<EngineStats>(shared_.router, GetStats{}); }
  void submit_all(std::uint64_t first, std::uint64_t last, std::int64_t max_tokens) {
    for (std::uint64_t tag = first; tag <= last; ++tag) ASSERT_TRUE(submit(tag, max_tokens)) << "request " << tag;
  }
  void expect_all_right(std::uint64_t first, std::uint64_t last, std::int64_t max_tokens) {
    ASSERT_TRUE(received_->wait_for(last));
    for (std::uint64_t tag = first; tag <= last; ++tag) expect_right(tag, max_tokens);
  }
  /// Waits until each request has generated tokens, and none has ended.
  bool all_have_tokens(std::size_t count) {
    return comes_true([&] {
      const auto list = ask<RequestList>(shared_.router, ListRequests{}).requests;
      const auto has_tokens = [](const LiveRequest& request) { return request.generated_tokens > 0; };
      return list.size() == count && std::ranges::all_of(list, has_tokens);
    });
  }
  std::string health_when_it_has_ended() {
    caf::scoped_actor self{*system_};
    self->wait_for(supervisor_);
    return stats().health;
  }
};

class SeveralReplicas : public SeveralDevices {
 protected:
  explicit SeveralReplicas(std::int32_t num_replicas)
      : SeveralDevices({.devices = Devices::here, .num_replicas = num_replicas, .num_ranks = 1}) {}

  /// Makes the devices of a replica fail for good.
  void break_replica(std::size_t id) {
    no_more_workers_.at(id) = true;
    caf::anon_send_exit(replica(id).devices.workers.at(0), caf::exit_reason::kill);
  }
  bool is_down(std::size_t id) { return stats().replicas.at(id).state == "down"; }
  std::vector<LiveRequest> requests() { return ask<RequestList>(shared_.router, ListRequests{}).requests; }
  Status migrate(RequestId id, ReplicaId to) {
    return ask<RequestMigrated>(shared_.router, MigrateRequest{id, to}).status;
  }
  Status drain(ReplicaId id) { return ask<ReplicaDrained>(shared_.router, DrainReplica{id, true, true}).status; }
  Status start(ReplicaId id) { return ask<ReplicaStarted>(shared_.router, StartReplica{id}).status; }
  /// Drains a replica on another thread, and waits until it takes no new requests. The answer comes when it has ended.
  std::future<Status> begin_drain(ReplicaId id) {
    auto answer = std::async(std::launch::async,
                             [=, this] { return ask<ReplicaDrained>(shared_.router, DrainReplica{id}).status; });
    EXPECT_TRUE(comes_true([&] { return stats().replicas.at(static_cast<std::size_t>(id)).state == "draining"; }));
    return answer;
  }
};

class TwoReplicas : public SeveralReplicas {
 protected:
  TwoReplicas() : SeveralReplicas(2) {}
};
class ThreeReplicas : public SeveralReplicas {
 protected:
  ThreeReplicas() : SeveralReplicas(3) {}
};

TEST_F(TwoReplicas, ShareTheRequestsAndReportTogether) {
  runners_->step_us = 500;
  submit_all(1, 8, 60);
  ASSERT_TRUE(all_have_tokens(8));
  const auto view = ask<view::EngineView>(shared_.router, GetView{.spans_after = 0, .replica = 1});
  std::set<ReplicaId> used;
  for (const auto& request : view.queues.requests) used.insert(request.replica);
  EXPECT_EQ(used, (std::set<ReplicaId>{0, 1}));
  EXPECT_EQ(view.num_replicas, 2);
  EXPECT_EQ(view.replica, 1);
  EXPECT_EQ(view.blocks.num_blocks, kDeviceBlocks);
  const EngineStats running = stats();
  EXPECT_EQ(running.device_blocks_total, 2 * kDeviceBlocks);
  ASSERT_EQ(running.replicas.size(), 2U);
  EXPECT_EQ(running.replicas[1].replica, 1);
  EXPECT_EQ(running.replicas[0].state, "up");
  EXPECT_EQ(running.requests_running, running.replicas[0].requests_running + running.replicas[1].requests_running);
  expect_all_right(1, 8, 60);
  const auto metrics = ask<metrics::EngineMetrics>(shared_.router, GetMetrics{});
  EXPECT_EQ(metrics.stats.requests_finished_total, 8);
  EXPECT_EQ(static_cast<std::int64_t>(metrics.steps.tokens.count()), metrics.stats.steps_total);
  EXPECT_EQ(ask<view::EngineView>(shared_.router, GetView{.spans_after = 0, .replica = 7}).blocks.num_blocks, 0);
}

TEST_F(TwoReplicas, TheRequestsOfAReplicaThatIsDownGoOnElsewhereWithTheirTokens) {
  runners_->step_us = 500;
  submit_all(1, 10, 100);
  ASSERT_TRUE(all_have_tokens(10));
  break_replica(0);
  expect_all_right(1, 10, 100);
  EXPECT_TRUE(is_down(0));
  const EngineStats now = stats();
  EXPECT_EQ(now.health, "ok") << "the engine serves";
  EXPECT_NE(now.replicas[0].health.find("no memory for another runner"), std::string::npos) << now.replicas[0].health;
  EXPECT_EQ(now.device_blocks_total, kDeviceBlocks);
  EXPECT_EQ(now.requests_failed_total, 0);
  EXPECT_GT(sum_of(&Timing::restarts), 0) << "requests that moved have restarted";
  submit_all(11, 14, 20);
  expect_all_right(11, 14, 20);
}

TEST_F(TwoReplicas, MayGoDownAtAnyTimeAndNoTokenChanges) {
  std::mt19937_64 random(7);
  runners_->step_us = 100;
  submit_all(1, 30, 40);
  std::this_thread::sleep_for(std::chrono::microseconds(random() % 20'000));
  break_replica(1);
  submit_all(31, 40, 40);
  expect_all_right(1, 40, 40);
}

TEST_F(TwoReplicas, AnActorThatDiesTakesItsReplicaDownAlone) {
  runners_->step_us = 500;
  submit_all(1, 8, 80);
  ASSERT_TRUE(all_have_tokens(8));
  caf::anon_send_exit(replica(1).scheduler, caf::exit_reason::kill);
  expect_all_right(1, 8, 80);
  EXPECT_TRUE(is_down(1));
}

TEST_F(TwoReplicas, ARequestThatIsCancelledWhileItMovesEnds) {
  runners_->step_us = 2000;
  submit_all(1, 6, 150);
  ASSERT_TRUE(all_have_tokens(6));
  break_replica(0);
  for (std::uint64_t tag = 1; tag <= 6; ++tag) {
    EXPECT_TRUE(ask<CancelReply>(shared_.router, CancelRequest{sink_, tag}).found);
  }
  ASSERT_TRUE(received_->wait_for(6));
  for (const auto& [tag, end] : received_->ends) {
    EXPECT_EQ(received_->num_ends.at(tag), 1);
    ASSERT_TRUE(end.done) << "request " << tag;
    EXPECT_EQ(end.done->outputs.at(0).finish_reason, FinishReason::abort);
  }
  EXPECT_TRUE(comes_true([&] { return stats().requests_running == 0; }));
}

TEST_F(TwoReplicas, TheEngineEndsWhenNeitherCanComeBack) {
  runners_->step_us = 2000;
  submit_all(1, 6, 150);
  break_replica(0);
  ASSERT_TRUE(comes_true([&] { return is_down(0); }));
  break_replica(1);
  ASSERT_TRUE(received_->wait_for(6));
  EXPECT_NE(health_when_it_has_ended().find("no memory for another runner"), std::string::npos);
  for (const auto& [tag, end] : received_->ends) {
    EXPECT_EQ(received_->num_ends.at(tag), 1);
    EXPECT_TRUE(end.error) << "request " << tag;
  }
  EXPECT_FALSE(submit(9, 5));
}

TEST_F(TwoReplicas, OneThatDrainsTakesNothingNewAndEndsWithItsRequests) {
  runners_->step_us = 1000;
  submit_all(1, 6, 60);
  ASSERT_TRUE(all_have_tokens(6));
  const Replica drained = replica(0);
  auto answer = begin_drain(0);
  const std::int64_t before = stats().replicas[0].requests_running;
  submit_all(7, 12, 60);
  EXPECT_LE(stats().replicas[0].requests_running + stats().replicas[0].requests_waiting, before);
  expect_all_right(1, 12, 60);
  EXPECT_TRUE(answer.get());
  caf::scoped_actor self{*system_};
  self->wait_for(drained.scheduler, drained.block_manager, drained.devices.workers.at(0));
  EXPECT_EQ(stats().replicas[0].state, "down");
  EXPECT_EQ(stats().health, "ok");
  submit_all(13, 16, 20);
  expect_all_right(13, 16, 20);
}

TEST_F(TwoReplicas, TheLastOneThatTakesRequestsIsNotDrained) {
  const auto drain = [&](ReplicaId id) { return ask<ReplicaDrained>(shared_.router, DrainReplica{id}).status; };
  const Status unknown = drain(2);
  ASSERT_FALSE(unknown);
  EXPECT_EQ(unknown.error().code, ErrorCode::invalid_request);
  EXPECT_EQ(unknown.error().param, "replica");
  EXPECT_TRUE(drain(1));
  EXPECT_FALSE(drain(1)) << "it has ended";
  EXPECT_FALSE(drain(0)) << "the only one left";
  submit_all(1, 2, 20);
  expect_all_right(1, 2, 20);
}

TEST_F(TwoReplicas, OneThatDrainsGoesOnServingIfTheOtherGoesDown) {
  runners_->step_us = 1000;
  submit_all(1, 6, 60);
  ASSERT_TRUE(all_have_tokens(6));
  auto answer = begin_drain(0);
  break_replica(1);
  expect_all_right(1, 6, 60);
  const Status drained = answer.get();
  ASSERT_FALSE(drained);
  EXPECT_EQ(drained.error().message, "no other replica is left");
  submit_all(7, 10, 20);
  expect_all_right(7, 10, 20);
  EXPECT_EQ(stats().health, "ok");
  EXPECT_EQ(stats().replicas[0].state, "up") << "its drain is taken back";
}

TEST_F(TwoReplicas, WhatADrainedOneCountedIsNotLostThoughNobodyHasAsked) {
  submit_all(1, 12, 30);
  expect_all_right(1, 12, 30);
  EXPECT_TRUE(ask<ReplicaDrained>(shared_.router, DrainReplica{0}).status);
  EXPECT_TRUE(ask<ReplicaDrained>(shared_.router, DrainReplica{0}).status.error().message.ends_with("is down"));
  const auto metrics = ask<metrics::EngineMetrics>(shared_.router, GetMetrics{});
  EXPECT_EQ(metrics.stats.requests_finished_total, 12);
  EXPECT_EQ(metrics.stats.generation_tokens_total, 15 * 30) << "three requests have two outputs";
  EXPECT_EQ(static_cast<std::int64_t>(metrics.steps.tokens.count()), metrics.stats.steps_total);
}

TEST_F(TwoReplicas, WhatOneCountedThatFailsIsNotLostThoughNobodyHasAsked) {
  submit_all(1, 12, 30);
  expect_all_right(1, 12, 30);
  break_replica(0);
  ASSERT_TRUE(comes_true([&] { return is_down(0); }));
  EXPECT_TRUE(comes_true([&] { return stats().requests_finished_total == 12; }));
  EXPECT_EQ(stats().generation_tokens_total, 15 * 30);
}

TEST_F(TwoReplicas, OneThatHasEndedGivesItsMemoryBack) {
  submit_all(1, 4, 20);
  expect_all_right(1, 4, 20);
  EXPECT_TRUE(ask<ReplicaDrained>(shared_.router, DrainReplica{1}).status);
  EXPECT_TRUE(comes_true([&] { return ranks_.at(1).expired(); }));
  EXPECT_FALSE(ranks_.at(0).expired());
}

TEST_F(TwoReplicas, ADrainMayBeAnsweredAtOnce) {
  runners_->step_us = 1000;
  submit_all(1, 6, 60);
  ASSERT_TRUE(all_have_tokens(6));
  EXPECT_TRUE(ask<ReplicaDrained>(shared_.router, DrainReplica{0, false}).status);
  EXPECT_EQ(stats().replicas[0].state, "draining");
  expect_all_right(1, 6, 60);
  EXPECT_TRUE(comes_true([&] { return is_down(0); }));
}

TEST_F(TwoReplicas, TheLastOneIsNotEndedForTheRouter) {
  const auto root = caf::actor_cast<SupervisorActor>(supervisor_);
  const auto end = [&](ReplicaId id) { return ask<ReplicaEnded>(root, EndReplica{id}).status; };
  break_replica(1);
  ASSERT_TRUE(comes_true([&] { return is_down(1); }));
  const Status refused = end(0);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().message, "no other replica is left");
  EXPECT_TRUE(end(1)) << "it ends";
  submit_all(1, 4, 20);
  expect_all_right(1, 4, 20);
}

TEST_F(TwoReplicas, ADrainThatMovesRequestsDoesNotWaitForThem) {
  runners_->step_us = 3000;
  submit_all(1, 6, 150);
  ASSERT_TRUE(all_have_tokens(6));
  ASSERT_GT(stats().replicas[0].requests_running, 0);
  EXPECT_TRUE(ask<ReplicaDrained>(shared_.router, DrainReplica{0, true, true}).status);
  EXPECT_TRUE(is_down(0));
  EXPECT_EQ(stats().requests_finished_total, 0) << "none has ended by itself";
  expect_all_right(1, 6, 150);
  EXPECT_EQ(stats().requests_failed_total, 0);
  submit_all(7, 10, 20);
  expect_all_right(7, 10, 20);
}

TEST_F(TwoReplicas, OneThatHasEndedStartsAgain) {
  submit_all(1, 12, 30);
  expect_all_right(1, 12, 30);
  ASSERT_TRUE(drain(0));
  ASSERT_TRUE(is_down(0));
  EXPECT_TRUE(start(0));
  EXPECT_EQ(stats().replicas[0].state, "up");
  EXPECT_EQ(stats().requests_finished_total, 12) << "what it counted before it ended";
  runners_->step_us = 500;
  submit_all(13, 20, 60);
  ASSERT_TRUE(all_have_tokens(8));
  EXPECT_GT(stats().replicas[0].requests_running, 0);
  EXPECT_EQ(stats().device_blocks_total, 2 * kDeviceBlocks);
  expect_all_right(13, 20, 60);
  EXPECT_EQ(stats().requests_finished_total, 20);
  EXPECT_EQ(stats().generation_tokens_total, 15 * 30 + 10 * 60) << "requests 1, 5, 9, 13 and 17 have two outputs";
  EXPECT_TRUE(drain(1)) << "the other one may end now";
  submit_all(21, 24, 20);
  expect_all_right(21, 24, 20);
}

TEST_F(TwoReplicas, OneThatHasFailedStartsAgainWhenItsDeviceIsBack) {
  runners_->step_us = 500;
  submit_all(1, 8, 100);
  ASSERT_TRUE(all_have_tokens(8));
  break_replica(0);
  ASSERT_TRUE(comes_true([&] { return is_down(0); }));
  const Status failed = start(0);
  ASSERT_FALSE(failed);
  EXPECT_EQ(failed.error().code, ErrorCode::out_of_memory);
  EXPECT_TRUE(is_down(0));
  EXPECT_EQ(stats().replicas[0].health, "it cannot be started again: no memory");
  no_more_workers_.at(0) = false;
  EXPECT_TRUE(start(0));
  EXPECT_EQ(stats().replicas[0].state, "up");
  EXPECT_EQ(stats().replicas[0].health, "ok");
  submit_all(9, 16, 40);
  expect_all_right(9, 16, 40);
  for (std::uint64_t tag = 1; tag <= 8; ++tag) expect_right(tag, 100);
}

TEST_F(TwoReplicas, OnlyOneThatIsDownStarts) {
  const auto why = [&](ReplicaId id) {
    const Status started = start(id);
    EXPECT_FALSE(started);
    EXPECT_EQ(started.error().param, "replica");
    return started.error().message;
  };
  EXPECT_EQ(why(2), "there is no replica 2; the engine has 2");
  EXPECT_EQ(why(0), "replica 0 is up");
  runners_->step_us = 1000;
  submit_all(1, 6, 60);
  ASSERT_TRUE(all_have_tokens(6));
  auto drained = begin_drain(0);
  EXPECT_EQ(why(0), "replica 0 drains; it can be started when it has ended");
  EXPECT_TRUE(drained.get());
  auto other = std::async(std::launch::async, [&] { return start(0); });
  EXPECT_TRUE(start(0) || other.get()) << "two clients may start it";
  EXPECT_EQ(stats().replicas[0].state, "up");
  expect_all_right(1, 6, 60);
}

TEST_F(TwoReplicas, EndAndStartAtAnyTimeAndNoTokenChanges) {
  std::mt19937_64 random(11);
  runners_->step_us = 100;
  std::uint64_t tag = 0;
  for (int round = 0; round < 20; ++round) {
    submit_all(tag + 1, tag + 6, 40);
    tag += 6;
    std::this_thread::sleep_for(std::chrono::microseconds(random() % 5'000));
    const auto id = static_cast<ReplicaId>(random() % 2);
    ASSERT_TRUE(drain(id));
    submit_all(tag + 1, tag + 2, 40);
    tag += 2;
    ASSERT_TRUE(start(id));
    if (round % 4 == 3) expect_all_right(tag - 31, tag, 40);
  }
  EXPECT_EQ(stats().requests_finished_total, static_cast<std::int64_t>(tag));
  EXPECT_EQ(stats().requests_failed_total, 0);
}

TEST_F(TwoReplicas, AnEngineMayEndWhileOneStarts) {
  ASSERT_TRUE(drain(0));
  EXPECT_TRUE(ask<ReplicaStarted>(shared_.router, StartReplica{0, false}).status);
  // The destructor ends the engine and waits for every actor.
}

TEST_F(TwoReplicas, ARequestMovesWithItsTokens) {
  runners_->step_us = 1000;
  submit_all(1, 6, 150);
  ASSERT_TRUE(all_have_tokens(6));
  for (const LiveRequest& request : requests()) {
    const ReplicaId other = 1 - request.replica;
    EXPECT_TRUE(migrate(request.id, other));
    const auto now = requests();
    EXPECT_EQ(std::ranges::find(now, request.id, &LiveRequest::id)->replica, other);
    EXPECT_TRUE(migrate(request.id, request.replica)) << "and back";
  }
  expect_all_right(1, 6, 150);
  EXPECT_EQ(stats().requests_failed_total, 0);
  EXPECT_EQ(stats().requests_finished_total, 6);
}

TEST_F(TwoReplicas, OnlyARequestOfAReplicaMovesAndOnlyToOneThatIsUp) {
  runners_->step_us = 1000;
  submit_all(1, 1, 150);
  ASSERT_TRUE(all_have_tokens(1));
  const LiveRequest one = requests().front();
  const auto why = [&](RequestId id, ReplicaId to) {
    const Status moved = migrate(id, to);
    return moved ? std::string() : moved.error().param + ": " + moved.error().message;
  };
  EXPECT_EQ(why(one.id, 2), "replica: there is no replica 2; the engine has 2");
  EXPECT_EQ(why(one.id + 100, 0), "id: no request with the id " + std::to_string(one.id + 100) + " is at a replica");
  EXPECT_TRUE(why(one.id, one.replica).ends_with("already"));
  const ReplicaId other = 1 - one.replica;
  ASSERT_TRUE(drain(other));
  EXPECT_EQ(why(one.id, other), "replica: replica " + std::to_string(other) + " is not up");
  expect_all_right(1, 1, 150);
  EXPECT_FALSE(migrate(one.id, other)) << "it has ended";
}

TEST_F(ThreeReplicas, RequestsMoveAtAnyTimeWhileReplicasEndAndStartAndNoTokenChanges) {
  std::mt19937_64 random(13);
  runners_->step_us = 200;
  constexpr std::uint64_t kRequests = 60;
  int num_moved = 0;
  std::uint64_t tag = 0;
  while (tag < kRequests) {
    submit_all(tag + 1, tag + 10, 60);
    tag += 10;
    for (int i = 0; i < 40; ++i) {
      const auto now = requests();
      if (now.empty()) break;
      num_moved += migrate(now[random() % now.size()].id, static_cast<ReplicaId>(random() % 3)) ? 1 : 0;
      if (i % 20 != 10) continue;
      const auto id = static_cast<ReplicaId>(random() % 3);
      ASSERT_TRUE(drain(id));
      ASSERT_TRUE(start(id));
    }
  }
  expect_all_right(1, kRequests, 60);
  EXPECT_GE(num_moved, 40);
  EXPECT_EQ(stats().requests_failed_total, 0);
  EXPECT_EQ(stats().requests_finished_total, static_cast<std::int64_t>(kRequests));
}

TEST_F(ThreeReplicas, RequestsMoveWhileOthersDrainAndDevicesDie) {
  std::mt19937_64 random(17);
  runners_->step_us = 500;
  submit_all(1, 12, 150);
  ASSERT_TRUE(all_have_tokens(12));
  std::atomic<bool> ends = false;
  auto mover = std::async(std::launch::async, [&] {
    std::mt19937_64 its_random(19);
    while (!ends) {
      const auto now = requests();
      if (now.empty()) return;
      (void)migrate(now[its_random() % now.size()].id, static_cast<ReplicaId>(its_random() % 3));
    }
  });
  for (int round = 0; round < 8; ++round) {
    const auto id = static_cast<ReplicaId>(1 + random() % 2);
    ASSERT_TRUE(drain(id));
    if (round % 4 == 1) caf::anon_send_exit(replica(0).devices.workers.at(0), caf::exit_reason::kill);
    ASSERT_TRUE(start(id));
  }
  ends = true;
  mover.get();
  expect_all_right(1, 12, 150);
}

TEST_F(TwoReplicas, ARequestIsCancelledWhileItMoves) {
  runners_->step_us = 1000;
  submit_all(1, 8, 150);
  ASSERT_TRUE(all_have_tokens(8));
  for (const LiveRequest& request : requests()) {
    auto moved = std::async(std::launch::async, [&] { return migrate(request.id, 1 - request.replica); });
    EXPECT_TRUE(ask<CancelReply>(shared_.router, AbortRequest{request.id}).found);
    moved.wait();
  }
  ASSERT_TRUE(received_->wait_for(8));
  EXPECT_TRUE(requests().empty());
  const std::lock_guard lock(received_->mutex);
  for (std::uint64_t tag = 1; tag <= 8; ++tag) {
    EXPECT_EQ(received_->num_ends.at(tag), 1) << "request " << tag;
    EXPECT_FALSE(received_->ends.at(tag).error) << "request " << tag;
  }
}

TEST_F(TwoReplicas, ADrainThatWaitsMayStopWaiting) {
  runners_->step_us = 3000;
  submit_all(1, 6, 150);
  ASSERT_TRUE(all_have_tokens(6));
  auto answer = begin_drain(0);
  EXPECT_TRUE(ask<ReplicaDrained>(shared_.router, DrainReplica{0, true, true}).status);
  EXPECT_TRUE(answer.get()) << "both are answered";
  EXPECT_EQ(stats().requests_finished_total, 0);
  expect_all_right(1, 6, 150);
}

TEST_F(TwoReplicas, TheLastOneKeepsItsRequestsThoughADrainWouldMoveThem) {
  runners_->step_us = 1000;
  EXPECT_TRUE(ask<ReplicaDrained>(shared_.router, DrainReplica{1}).status);
  submit_all(1, 6, 60);
  ASSERT_TRUE(all_have_tokens(6));
  EXPECT_FALSE(ask<ReplicaDrained>(shared_.router, DrainReplica{0, true, true}).status);
  EXPECT_EQ(stats().replicas[0].state, "up");
  expect_all_right(1, 6, 60);
}

TEST_F(ThreeReplicas, RequestsMoveTwiceAndCountAsNoLoss) {
  runners_->step_us = 500;
  submit_all(1, 12, 150);
  ASSERT_TRUE(all_have_tokens(12));
  for (const ReplicaId id : {0, 1}) {
    EXPECT_TRUE(ask<ReplicaDrained>(shared_.router, DrainReplica{id, true, true}).status);
  }
  expect_all_right(1, 12, 150);
  EXPECT_EQ(stats().requests_failed_total, 0);
}

class ThreeReplicasThatEnd : public ThreeReplicas, public testing::WithParamInterface<bool> {};

/// With true the scheduler ends, which then cannot tell what it was running.
TEST_P(ThreeReplicasThatEnd, ARequestThatTakesDownTwoFailsAndTheThirdServes) {
  runners_->step_us = 500;
  ASSERT_TRUE(submit(4, 150));
  for (int losses = 1; losses <= 2; ++losses) {
    ASSERT_TRUE(all_have_tokens(1));
    const auto replicas = stats().replicas;
    const auto its = std::ranges::find_if(replicas, [](const ReplicaStats& one) { return one.requests_running == 1; });
    ASSERT_NE(its, replicas.end());
    const auto id = static_cast<std::size_t>(its->replica);
    GetParam() ? caf::anon_send_exit(replica(id).scheduler, caf::exit_reason::kill) : break_replica(id);
    ASSERT_TRUE(comes_true([&] { return is_down(id); }));
    ASSERT_TRUE(comes_true([&] { return stats().requests_running == (losses == 1 ? 1 : 0); }));
  }
  ASSERT_TRUE(received_->wait_for(1));
  {
    const std::lock_guard lock(received_->mutex);
    ASSERT_TRUE(received_->ends.at(4).error);
    EXPECT_EQ(received_->ends.at(4).error->code, ErrorCode::device_failed);
  }
  EXPECT_EQ(stats().requests_failed_total, 1);
  EXPECT_EQ(stats().health, "ok");
  ASSERT_TRUE(submit(8, 20));
  ASSERT_TRUE(received_->wait_for(2));
  expect_right(8, 20);
}

INSTANTIATE_TEST_SUITE_P(Ends, ThreeReplicasThatEnd, testing::Bool());

TEST_F(ThreeReplicas, OneFailsWhileAnotherDrainsAndTheThirdGoesOn) {
  runners_->step_us = 300;
  submit_all(1, 20, 60);
  auto answer =
      std::async(std::launch::async, [&] { return ask<ReplicaDrained>(shared_.router, DrainReplica{0}).status; });
  break_replica(1);
  expect_all_right(1, 20, 60);
  EXPECT_TRUE(answer.get());
  EXPECT_TRUE(is_down(0));
  EXPECT_TRUE(is_down(1));
  submit_all(21, 24, 20);
  expect_all_right(21, 24, 20);
}

TEST_F(TwoReplicas, ADrainOfTheEngineWaitsForBoth) {
  submit_all(1, 8, 40);
  EXPECT_EQ(ask<Drained>(shared_.router, Drain{60'000}).aborted, 0);
  expect_all_right(1, 8, 40);
  EXPECT_FALSE(submit(9, 5));
}

/// A replica with two ranks.
class TwoRanks : public SeveralDevices {
 protected:
  explicit TwoRanks(Devices devices = Devices::here)
      : SeveralDevices({.devices = devices, .num_replicas = 1, .num_ranks = 2}) {}

  std::int64_t num_steps(std::size_t rank) const { return runners_->num_steps.at(rank); }

  /// Sends requests in rounds, calls `kill` at a random time of each round, and expects every request to end right.
  void expect_right_under(int rounds, std::mt19937_64& random, const std::function<void()>& kill) {
    constexpr std::int64_t kTokens = 60;
    runners_->step_us = 50;
    std::uint64_t tag = 0;
    for (int round = 0; round < rounds; ++round, tag += 8) {
      submit_all(tag + 1, tag + 8, kTokens);
      std::this_thread::sleep_for(std::chrono::microseconds(random() % 4000));
      kill();
      expect_all_right(tag + 1, tag + 8, kTokens);
    }
  }
};

TEST_F(TwoRanks, EachGetsEachStepAndEachMove) {
  submit_all(1, 12, 60);
  expect_all_right(1, 12, 60);
  EXPECT_GT(stats().preemptions_swap_total, 0) << "blocks must move";
  EXPECT_TRUE(comes_true([&] { return num_steps(0) == num_steps(1); }));
  EXPECT_EQ(num_steps(0), stats().steps_total);
}

TEST_F(TwoRanks, AnErrorOfAnyRankFailsTheStepForItsRequests) {
  std::uint64_t tag = 0;
  for (const int rank : {0, 1}) {
    // A step that was in flight behind the failed one may fail in the place of the next request's.
    std::optional<Error> error;
    for (int tries = 0; tries < 10 && !error; ++tries) {
      runners_->failing_rank = rank;
      ASSERT_TRUE(submit(++tag, 10));
      ASSERT_TRUE(received_->wait_for(tag));
      const std::lock_guard lock(received_->mutex);
      error = received_->ends.at(tag).error;
    }
    ASSERT_TRUE(error);
    EXPECT_NE(error->message.find("rank " + std::to_string(rank)), std::string::npos) << error->message;
  }
  EXPECT_EQ(stats().worker_restarts_total, 0);
  ASSERT_TRUE(submit(++tag, 10));
  ASSERT_TRUE(received_->wait_for(tag));
  expect_right(tag, 10);
}

TEST_F(TwoRanks, MayDieAtAnyTimeAndNoTokenChanges) {
  constexpr int kRounds = 20;
  std::mt19937_64 random(9);
  expect_right_under(kRounds, random, [&] {
    const DeviceGroup devices = replica().devices;
    const std::size_t rank = random() % 2;
    if (random() % 2 == 0) {
      caf::anon_send_exit(devices.workers.at(rank), caf::exit_reason::kill);
    } else {
      caf::anon_send_exit(devices.cache_engines.at(rank), caf::exit_reason::kill);
    }
  });
  EXPECT_GT(stats().worker_restarts_total, kRounds / 2);
  EXPECT_EQ(stats().requests_failed_total, 0);
}

class TwoRankProcesses : public TwoRanks {
 protected:
  TwoRankProcesses() : TwoRanks(Devices::processes) {}

  void fail_process(std::size_t rank, ProcessEnd end, bool memory_lost) {
    const auto process = caf::actor_cast<DeviceKeeperActor>(replica().devices.workers.at(rank));
    send_anonymously(process, DeviceFailed{{ErrorCode::device_failed, "it was killed"}, false, memory_lost, end});
  }
};

TEST_F(TwoRankProcesses, AHungOneIsReplacedWithTheOther) {
  runners_->step_us = 500;
  submit_all(1, 8, 80);
  ASSERT_TRUE(all_have_tokens(8));
  const auto before = stats().worker_pids;
  ASSERT_EQ(before.size(), 2U);
  fail_process(1, ProcessEnd::hung, false);
  expect_all_right(1, 8, 80);
  const EngineStats now = stats();
  EXPECT_EQ(now.worker_hangs_total, 1);
  EXPECT_EQ(now.worker_restarts_total, 1);
  ASSERT_EQ(now.worker_pids.size(), 2U);
  for (std::size_t rank = 0; rank < 2; ++rank) EXPECT_NE(now.worker_pids[rank], before[rank]) << "rank " << rank;
  EXPECT_EQ(times_lost_, 0) << "the memory of both has outlived them";
}

TEST_F(TwoRankProcesses, MayDieUnderPlansAndNoTokenChanges) {
  constexpr int kRounds = 30;
  std::mt19937_64 random(10);
  expect_right_under(kRounds, random, [&] { fail_process(random() % 2, ProcessEnd::died, random() % 4 == 0); });
  EXPECT_EQ(stats().worker_restarts_total, kRounds);
  EXPECT_GT(stats().preemptions_swap_total, kRounds) << "plans must be under way where processes die";
}

class TwoByTwo : public SeveralDevices {
 protected:
  TwoByTwo() : SeveralDevices({.devices = Devices::here, .num_replicas = 2, .num_ranks = 2}) {}
};

TEST_F(TwoByTwo, ServesWithADeadRankAndADeadReplica) {
  runners_->step_us = 200;
  submit_all(1, 12, 60);
  caf::anon_send_exit(replica(0).devices.workers.at(1), caf::exit_reason::kill);
  submit_all(13, 16, 60);
  no_more_workers_[1] = true;
  caf::anon_send_exit(replica(1).devices.workers.at(1), caf::exit_reason::kill);
  expect_all_right(1, 16, 60);
  EXPECT_EQ(stats().replicas.at(1).state, "down");
}

}  // namespace
}  // namespace pagoda::actors

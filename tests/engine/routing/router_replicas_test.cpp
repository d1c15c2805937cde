#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "engine/routing/router_core.hpp"

namespace pagoda::routing {
namespace {

AdmissionLimits limits_of(std::int32_t num_replicas) {
  AdmissionLimits limits;
  limits.vocab_size = 100;
  limits.max_model_len = limits.max_kv_tokens = 32;
  limits.max_num_seqs = 4;
  limits.max_queued_requests = 20;
  limits.max_queued_prompt_tokens = 1000;
  limits.num_replicas = num_replicas;
  return limits;
}

/// A router whose requests are all in the engine.
struct RoutedRequests {
  explicit RoutedRequests(std::int32_t num_replicas) : core(limits_of(num_replicas), 0) {}

  SharedSpec submit(std::uint64_t tag) {
    GenerateRequest request;
    request.prompt_token_ids = {1, 2, static_cast<std::int64_t>(tag)};
    const auto submitted = core.submit(1, tag, request, 10);
    auto effects = core.prompt_encoded(submitted.value().id, TokenIds{1, 2, static_cast<TokenId>(tag)});
    return std::get<SharedSpec>(effects.settled.at(0).outcome);
  }

  RouterCore core;
};

TEST(RouterReplicas, RequestsOfAReplicaThatIsDownAreMovedWithTheirProgress) {
  RoutedRequests router(2);
  std::vector<SharedSpec> handed_over;
  for (std::uint64_t tag = 1; tag <= 6; ++tag) {
    const SharedSpec spec = router.submit(tag);
    if (router.core.replica_of(spec->id) != 0) continue;
    auto progress = std::make_shared<RequestProgress>();
    progress->sequences.emplace_back().result.token_ids = {7};
    handed_over.push_back(with_progress(*spec, progress));
  }
  ASSERT_EQ(handed_over.size(), 3U);
  router.core.replica_down(0);
  const auto closed = router.core.closed(handed_over[1]->id, {}, 20);
  EXPECT_FALSE(closed.drained);
  const auto effects = router.core.hand_over(0, handed_over);
  ASSERT_EQ(effects.moved.size(), 2U) << "one has ended meanwhile";
  for (const SharedSpec& spec : effects.moved) {
    EXPECT_EQ(router.core.replica_of(spec->id), 1);
    EXPECT_EQ(spec->progress->sequences.at(0).result.token_ids, TokenIds{7});
  }
  EXPECT_EQ(router.core.placement().num_placed_on(0), 0);
  EXPECT_TRUE(router.core.hand_over(0, handed_over).empty()) << "they run elsewhere";
  EXPECT_EQ(router.core.replica_of(router.submit(7)->id), 1);
}

TEST(RouterReplicas, NothingIsMovedWhenNoReplicaIsLeft) {
  RoutedRequests router(2);
  const SharedSpec spec = router.submit(1);
  router.core.replica_down(0);
  router.core.replica_down(1);
  EXPECT_TRUE(router.core.hand_over(0, {spec}).empty());
}

TEST(RouterReplicas, TheLastReplicaThatIsUpIsNotDrained) {
  RoutedRequests router(2);
  const auto why = [&](ReplicaId id) {
    const Status status = router.core.check_drain(id);
    return status ? std::string() : status.error().message;
  };
  EXPECT_EQ(why(2), "there is no replica 2; the engine has 2");
  EXPECT_EQ(why(-1), "there is no replica -1; the engine has 2");
  EXPECT_EQ(why(0), "");
  router.core.drain_replica(0);
  EXPECT_EQ(why(0), "") << "a second client may wait for it too";
  EXPECT_NE(why(1).find("the only one that takes requests"), std::string::npos);
  router.core.replica_down(0);
  EXPECT_EQ(why(0), "replica 0 is down");
}

TEST(RouterReplicas, AReplicaStartsAgainWhenItsRequestsHaveMoved) {
  RoutedRequests router(2);
  const auto why = [&](ReplicaId id) {
    const Status status = router.core.check_start(id);
    return status ? std::string() : status.error().message;
  };
  std::vector<SharedSpec> of_first;
  for (std::uint64_t tag = 1; tag <= 4; ++tag) {
    const SharedSpec spec = router.submit(tag);
    if (router.core.replica_of(spec->id) == 0) of_first.push_back(spec);
  }
  ASSERT_FALSE(of_first.empty());
  EXPECT_EQ(why(2), "there is no replica 2; the engine has 2");
  EXPECT_EQ(why(0), "replica 0 is up");
  router.core.drain_replica(0);
  EXPECT_EQ(why(0), "replica 0 drains; it can be started when it has ended");
  router.core.replica_down(0);
  router.core.hand_over(0, of_first);
  EXPECT_EQ(why(0), "");
  router.core.start_replica(0);
  EXPECT_EQ(why(0), "replica 0 is up");
  EXPECT_EQ(router.core.replica_of(router.submit(5)->id), 0) << "it has no work";
  EXPECT_TRUE(router.core.check_drain(1));
}

TEST(RouterReplicas, ARequestMovesUnlessItHasEndedOrMovedMeanwhile) {
  RoutedRequests router(3);
  const SharedSpec spec = router.submit(1);
  const ReplicaId from = router.core.replica_of(spec->id);
  const ReplicaId to = (from + 1) % 3;
  const ReplicaId third = (from + 2) % 3;
  EXPECT_TRUE(router.core.check_migration(spec->id, to));
  EXPECT_EQ(router.core.check_migration(spec->id, from).error().param, "replica");
  EXPECT_EQ(router.core.check_migration(spec->id, 3).error().param, "replica");
  EXPECT_EQ(router.core.check_migration(spec->id + 1, to).error().param, "id");
  EXPECT_EQ(router.core.migrate(spec, from, to).moved.size(), 1U);
  EXPECT_EQ(router.core.replica_of(spec->id), to);
  EXPECT_TRUE(router.core.migrate(spec, from, third).empty()) << "it has moved before";
  router.core.replica_down(third);
  EXPECT_EQ(router.core.check_migration(spec->id, third).error().param, "replica");
  EXPECT_EQ(router.core.migrate(spec, to, third).moved.size(), 1U) << "it went down meanwhile";
  EXPECT_NE(router.core.replica_of(spec->id), third);
  router.core.closed(spec->id, {}, 20);
  EXPECT_TRUE(router.core.migrate(spec, from, to).empty());
}

TEST(RouterReplicas, WhatAReplicaKnewOfARequestThatHasMovedIsNotUsed) {
  RoutedRequests router(3);
  const SharedSpec spec = router.submit(1);
  const ReplicaId first = router.core.replica_of(spec->id);
  const ReplicaId second = (first + 1) % 3;
  router.core.migrate(spec, first, second);
  router.core.replica_down(first);
  router.core.replica_down(second);
  EXPECT_TRUE(router.core.hand_over(first, {spec}).empty()) << "the second one has more of its tokens";
  EXPECT_EQ(router.core.hand_over(second, {spec}).moved.size(), 1U);
}

TEST(RouterReplicas, ASavedRouterGoesOnWithoutTheReplicasThatAreDown) {
  RoutedRequests router(3);
  router.submit(1);
  router.core.drain_replica(0);
  router.core.replica_down(1);
  std::vector<std::byte> bytes;
  Encoder out(bytes);
  router.core.save(out);
  RoutedRequests loaded(3);
  Decoder in(bytes);
  ASSERT_TRUE(loaded.core.load(in));
  for (std::uint64_t tag = 2; tag <= 6; ++tag) EXPECT_EQ(loaded.core.replica_of(loaded.submit(tag)->id), 2);
}

TEST(RouterReplicas, AReplicaWhoseDrainIsTakenBackGetsRequestsAgain) {
  RoutedRequests router(2);
  router.core.drain_replica(0);
  EXPECT_EQ(router.core.replica_of(router.submit(1)->id), 1);
  router.core.resume_replica(0);
  EXPECT_EQ(router.core.placement().state_of(0), placement::ReplicaState::up);
  EXPECT_EQ(router.core.replica_of(router.submit(2)->id), 0);
  EXPECT_TRUE(router.core.check_drain(1));
}

TEST(RouterReplicas, ARequestThatWasRunningWhenTwoReplicasWentDownFails) {
  RoutedRequests router(4);
  const SharedSpec suspect = router.submit(1);
  for (int losses = 1; losses <= 2; ++losses) {
    const ReplicaId its = router.core.replica_of(suspect->id);
    router.core.replica_down(its);
    const auto effects = router.core.hand_over(its, {suspect}, {suspect->id});
    ASSERT_EQ(effects.failed.size(), losses == 2 ? 1U : 0U);
    EXPECT_EQ(effects.moved.size(), losses == 2 ? 0U : 1U);
    for (const auto& failed : effects.failed) EXPECT_EQ(failed.error.code, ErrorCode::device_failed);
  }
  EXPECT_EQ(router.core.with_own({}, 50).requests_failed_total, 1);
  EXPECT_FALSE(router.core.closed(suspect->id, {}, 60).drained);
  EXPECT_FALSE(router.core.is_live(suspect->id));
}

TEST(RouterReplicas, ARequestThatWaitedIsMovedHoweverManyReplicasGoDown) {
  RoutedRequests router(4);
  const SharedSpec spec = router.submit(1);
  for (int losses = 1; losses <= 3; ++losses) {
    const ReplicaId its = router.core.replica_of(spec->id);
    router.core.replica_down(its);
    EXPECT_EQ(router.core.hand_over(its, {spec}, {spec->id + 1}).moved.size(), 1U) << losses;
  }
}

/// Returns whether the forecast lets a request in while `num_live` requests are live and each takes a second.
/// `num_back`: how many of the replicas that were down are up again.
bool is_let_in(std::int32_t num_down, std::int64_t num_live, std::int32_t num_back = 0) {
  auto limits = limits_of(3);  // 4 rows each
  limits.target_ttft_ms = 1000;
  RouterCore core(limits, 0);
  const auto submit = [&](std::uint64_t tag, TimeUs now) -> std::optional<RequestId> {
    GenerateRequest request;
    request.prompt_token_ids = {1, 2};
    const auto submitted = core.submit(1, tag, request, now);
    if (!submitted) return std::nullopt;
    core.prompt_encoded(submitted->id, TokenIds{1, 2});
    return submitted->id;
  };
  for (ReplicaId id = 0; id < num_down; ++id) core.replica_down(id);
  for (ReplicaId id = 0; id < num_back; ++id) core.start_replica(id);
  // A request ends each second, for ten seconds.
  std::uint64_t tag = 1;
  std::vector<RequestId> live;
  for (; tag < 20; ++tag) live.push_back(submit(tag, 0).value());
  for (TimeUs second = 1; second <= 10; ++second) {
    core.closed(live.back(), {.prompt_tokens = 2, .generated_tokens = 1, .queue_us = 0, .ttft_us = 0},
                second * 1'000'000);
    live.pop_back();
  }
  while (std::ssize(live) > num_live) {
    core.closed(live.back(), {}, 10'000'001);
    live.pop_back();
  }
  return submit(tag, 10'000'002).has_value();
}

TEST(RouterReplicas, TheForecastOfTheFirstTokenCountsTheRowsOfReplicasThatAreUp) {
  EXPECT_TRUE(is_let_in(0, 7)) << "12 rows";
  EXPECT_FALSE(is_let_in(2, 7)) << "4 rows";
  EXPECT_TRUE(is_let_in(2, 2));
  EXPECT_TRUE(is_let_in(2, 7, 2)) << "12 rows again";
}

}  // namespace
}  // namespace pagoda::routing

#include <memory>
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
  const auto effects = router.core.hand_over(handed_over);
  ASSERT_EQ(effects.moved.size(), 2U) << "one has ended meanwhile";
  for (const SharedSpec& spec : effects.moved) {
    EXPECT_EQ(router.core.replica_of(spec->id), 1);
    EXPECT_EQ(spec->progress->sequences.at(0).result.token_ids, TokenIds{7});
  }
  EXPECT_EQ(router.core.placement().num_placed_on(0), 0);
  EXPECT_TRUE(router.core.hand_over(handed_over).empty()) << "they run elsewhere";
  EXPECT_EQ(router.core.replica_of(router.submit(7)->id), 1);
}

TEST(RouterReplicas, NothingIsMovedWhenNoReplicaIsLeft) {
  RoutedRequests router(2);
  const SharedSpec spec = router.submit(1);
  router.core.replica_down(0);
  router.core.replica_down(1);
  EXPECT_TRUE(router.core.hand_over({spec}).empty());
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

}  // namespace
}  // namespace pagoda::routing

#include "engine/placement/placement_core.hpp"

#include <memory>
#include <random>
#include <set>

#include <gtest/gtest.h>

namespace pagoda::placement {
namespace {

RequestSpec request(RequestId id, TokenId first, std::size_t num_tokens, std::int64_t max_tokens = 10) {
  RequestSpec spec;
  spec.id = id;
  TokenIds prompt;
  for (std::size_t i = 0; i < num_tokens; ++i) prompt.push_back(first + static_cast<TokenId>(i));
  spec.prompt = std::make_shared<const TokenIds>(std::move(prompt));
  spec.sampling.max_tokens = max_tokens;
  return spec;
}

TEST(Placement, GivesEverythingToTheOnlyReplica) {
  PlacementCore core({.num_replicas = 1});
  for (RequestId id = 1; id <= 10; ++id) EXPECT_EQ(core.place(request(id, 5, 300)), 0);
  EXPECT_EQ(core.replica_of(7), 0);
  EXPECT_EQ(core.load(0), 10 * 310);
}

TEST(Placement, SpreadsPromptsThatShareNothing) {
  PlacementCore core({.num_replicas = 3});
  std::multiset<ReplicaId> used;
  for (RequestId id = 1; id <= 9; ++id) used.insert(core.place(request(id, static_cast<TokenId>(1000 * id), 200)));
  for (ReplicaId replica = 0; replica < 3; ++replica) EXPECT_EQ(used.count(replica), 3U);
}

TEST(Placement, SendsAPromptWhereItsBeginningWasComputed) {
  PlacementCore core({.num_replicas = 2});
  const ReplicaId first = core.place(request(1, 5, 640));
  core.ended(1);
  const ReplicaId other = core.place(request(2, 7000, 64));
  EXPECT_EQ(other, 0) << "nothing runs: the first of equals";
  core.ended(2);
  core.place(request(3, 90000, 200));  // the first is a little busier now
  EXPECT_EQ(core.place(request(4, 5, 700)), first);
  EXPECT_EQ(core.load(first), 210 + 60 + 10) << "what is cached is not counted";
}

TEST(Placement, DoesNotLetABeginningPileEverythingOnOneReplica) {
  PlacementCore core({.num_replicas = 2});
  std::multiset<ReplicaId> used;
  for (RequestId id = 1; id <= 40; ++id) used.insert(core.place(request(id, 5, 640)));
  EXPECT_GT(used.count(0), 10U);
  EXPECT_GT(used.count(1), 10U);
}

TEST(Placement, GivesAReplicaThatDrainsNothingNewWhileAnotherIsUp) {
  PlacementCore core({.num_replicas = 2});
  core.place(request(1, 5, 64));
  core.drain(0);
  for (RequestId id = 2; id <= 10; ++id) EXPECT_EQ(core.place(request(id, 5, 64)), 1);
  EXPECT_EQ(core.num_placed_on(0), 1);
  EXPECT_EQ(core.count(ReplicaState::up), 1);
  core.take_down(1);
  EXPECT_EQ(core.place(request(11, 5, 64)), 0) << "better than none";
}

TEST(Placement, PlacesTheRequestsOfAReplicaThatIsDownAgain) {
  PlacementCore core({.num_replicas = 2});
  core.place(request(1, 5, 640));
  core.place(request(2, 7000, 640));
  core.take_down(0);
  EXPECT_EQ(core.place_again(request(1, 5, 640)), 1);
  EXPECT_EQ(core.load(0), 0);
  EXPECT_EQ(core.load(1), 2 * 650);
  EXPECT_EQ(core.num_placed_on(1), 2);
}

TEST(Placement, PlacesARequestWhereItIsWantedIfThatReplicaIsUp) {
  PlacementCore core({.num_replicas = 3});
  core.place(request(1, 5, 640));
  ASSERT_EQ(core.replica_of(1), 0);
  EXPECT_EQ(core.place_again(request(1, 5, 640), 2), 2);
  EXPECT_EQ(core.load(0), 0);
  EXPECT_EQ(core.load(2), 650);
  core.drain(1);
  EXPECT_EQ(core.place_again(request(1, 5, 640), 1), 0) << "it drains";
  core.take_down(1);
  EXPECT_EQ(core.place_again(request(1, 5, 640), 1), 0);
  core.start(1);
  EXPECT_EQ(core.place_again(request(1, 5, 640), 1), 1);
}

TEST(Placement, ASavedCoreKeepsTheStatesOfItsReplicas) {
  PlacementCore core({.num_replicas = 3});
  core.place(request(1, 5, 64));
  core.drain(1);
  core.take_down(2);
  std::vector<std::byte> bytes;
  Encoder out(bytes);
  core.save(out);
  PlacementCore loaded({.num_replicas = 3});
  Decoder in(bytes);
  ASSERT_TRUE(loaded.load(in));
  EXPECT_EQ(loaded.state_of(0), ReplicaState::up);
  EXPECT_EQ(loaded.state_of(1), ReplicaState::draining);
  EXPECT_EQ(loaded.state_of(2), ReplicaState::down);
  PlacementCore smaller({.num_replicas = 2});
  Decoder again(bytes);
  EXPECT_FALSE(smaller.load(again));
}

TEST(Placement, KeepsPromptsOfAnotherSaltApart) {
  PlacementCore core({.num_replicas = 2});
  core.place(request(1, 5, 640));
  core.ended(1);
  RequestSpec salted = request(2, 5, 640);
  salted.cache_salt = "mine";
  core.place(salted);
  EXPECT_EQ(core.load(0), 650);
}

TEST(Placement, CountsEveryTokenOutAgainAndForgetsTheOldestBeginnings) {
  PlacementCore core({.num_replicas = 3, .tokens_per_piece = 4, .max_known_pieces = 50});
  std::mt19937_64 random(3);
  std::set<RequestId> live;
  for (RequestId id = 1; id <= 2000; ++id) {
    core.place(request(id, static_cast<TokenId>(random() % 7 * 100), random() % 60 + 1));
    live.insert(id);
    while (live.size() > random() % 20) {
      core.ended(*live.begin());
      live.erase(live.begin());
    }
  }
  for (const RequestId id : live) core.ended(id);
  core.ended(99999);
  for (ReplicaId replica = 0; replica < 3; ++replica) EXPECT_EQ(core.load(replica), 0);
}

}  // namespace
}  // namespace pagoda::placement

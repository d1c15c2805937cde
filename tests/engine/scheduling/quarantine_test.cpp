#include "engine/scheduling/quarantine.hpp"

#include <algorithm>
#include <iterator>
#include <optional>
#include <set>
#include <vector>

#include <gtest/gtest.h>

namespace pagoda::scheduling {
namespace {

/// Runs requests as the scheduler does: those that are not held back. A worker crashes whenever a culprit runs.
struct Trials {
  explicit Trials(RequestId count) {
    for (RequestId id = 1; id <= count; ++id) live.insert(id);
  }

  /// Runs crashes or trials until the first request is blamed.
  std::optional<RequestId> first_blamed() {
    for (num_rounds = 0; num_rounds < 1000; ++num_rounds) {
      quarantine.end_rest();
      std::set<RequestId> ran;
      for (const RequestId id : live) {
        if (!quarantine.holds_back(id)) ran.insert(id);
      }
      const bool crashes = std::ranges::any_of(culprits, [&](RequestId id) { return ran.contains(id); });
      if (!crashes && quarantine.is_empty()) return std::nullopt;
      if (!crashes) {
        quarantine.trial_passed();
        continue;
      }
      ++num_crashes;
      if (const auto blamed = quarantine.crashed({.ran = ran, .without_output = without_output_of(ran)})) return blamed;
    }
    return std::nullopt;
  }

  std::set<RequestId> without_output_of(const std::set<RequestId>& ran) const {
    std::set<RequestId> both;
    std::ranges::set_intersection(ran, without_output, std::inserter(both, both.end()));
    return both;
  }

  Quarantine quarantine;
  std::set<RequestId> live;
  std::set<RequestId> culprits;
  std::set<RequestId> without_output;
  int num_crashes = 0;
  int num_rounds = 0;
};

TEST(Quarantine, FindsTheCulpritByBisection) {
  for (RequestId culprit = 1; culprit <= 64; ++culprit) {
    Trials trials(64);
    trials.culprits = {culprit};
    EXPECT_EQ(trials.first_blamed(), culprit);
    EXPECT_LE(trials.num_rounds, 2 + 2 * 6 + 1) << "two crashes, six halves, of which some pass, and once alone";
  }
}

TEST(Quarantine, ACulpritWithoutOutputIsFoundAtOnceAmongOthersThatHaveSome) {
  for (const RequestId culprit : {1, 30, 64}) {
    Trials trials(64);
    trials.culprits = trials.without_output = {culprit};
    EXPECT_EQ(trials.first_blamed(), culprit);
    EXPECT_EQ(trials.num_crashes, 3) << "two crashes, and once alone";
  }
}

TEST(Quarantine, OthersWithoutOutputDelayTheSearchByTheirBisection) {
  Trials trials(64);
  trials.culprits = {40};
  for (RequestId id = 33; id <= 48; ++id) trials.without_output.insert(id);
  EXPECT_EQ(trials.first_blamed(), RequestId{40});
  EXPECT_LE(trials.num_crashes, 2 + 1 + 4 + 1) << "two crashes, all without output, four halves, and once alone";
}

TEST(Quarantine, BlamesOneCulpritAfterTheOtherAndNoOtherRequest) {
  Trials trials(40);
  trials.culprits = {3, 17, 18, 40};
  std::set<RequestId> blamed;
  while (const auto found = trials.first_blamed()) {
    EXPECT_TRUE(trials.culprits.contains(*found)) << *found;
    blamed.insert(*found);
    trials.culprits.erase(*found);
    trials.live.erase(*found);
    trials.quarantine.forget(*found);
  }
  EXPECT_EQ(blamed, (std::set<RequestId>{3, 17, 18, 40}));
  EXPECT_TRUE(trials.quarantine.is_empty());
}

TEST(Quarantine, OneCrashQuarantinesNoRequest) {
  Quarantine quarantine;
  EXPECT_FALSE(quarantine.crashed({.ran = {1, 2, 3}}));
  EXPECT_TRUE(quarantine.is_empty());
  EXPECT_FALSE(quarantine.crashed({.ran = {3, 4}}));
  EXPECT_EQ(quarantine.solo_request(), RequestId{3});
  EXPECT_TRUE(quarantine.holds_back(4));
}

TEST(Quarantine, HalfOfTheQuarantinedRequestsRunAndOthersRunBesideThem) {
  Quarantine quarantine;
  quarantine.crashed({.ran = {1, 2, 3, 4}});
  quarantine.crashed({.ran = {1, 2, 3, 4, 5}});
  EXPECT_EQ(quarantine.on_trial().size(), 2U);
  for (const RequestId id : {1U, 2U, 5U}) EXPECT_FALSE(quarantine.holds_back(id));
  for (const RequestId id : {3U, 4U}) EXPECT_TRUE(quarantine.holds_back(id));
  quarantine.trial_passed();
  for (const RequestId id : {1U, 3U, 4U}) EXPECT_FALSE(quarantine.holds_back(id)) << "the next two are on trial";
  quarantine.crashed({.ran = {1, 3, 4}});
  EXPECT_TRUE(quarantine.holds_back(3)) << "it rests";
  for (const RequestId id : {1U, 5U}) EXPECT_FALSE(quarantine.holds_back(id));
  EXPECT_TRUE(quarantine.end_rest());
  EXPECT_EQ(quarantine.solo_request(), RequestId{3});
  for (const RequestId id : {1U, 4U, 5U}) EXPECT_TRUE(quarantine.holds_back(id));
}

TEST(Quarantine, SuspectsRestForTwiceTheTimeOfACrash) {
  Quarantine quarantine;
  quarantine.crashed({.ran = {1, 2, 3}, .without_output = {3}, .began_us = 1000});
  EXPECT_TRUE(quarantine.is_empty());
  EXPECT_TRUE(quarantine.is_active());
  EXPECT_TRUE(quarantine.holds_back(3));
  EXPECT_FALSE(quarantine.holds_back(1));
  EXPECT_FALSE(quarantine.end_rest_if_over(1100)) << "no step has ended";
  quarantine.step_ended();
  EXPECT_FALSE(quarantine.end_rest_if_over(1200)) << "behind the first step";
  EXPECT_FALSE(quarantine.end_rest_if_over(1599));
  EXPECT_TRUE(quarantine.end_rest_if_over(1600));
  EXPECT_FALSE(quarantine.holds_back(3));
  EXPECT_FALSE(quarantine.is_active());
}

TEST(Quarantine, SuspectsRestForTenSecondsAtMost) {
  Quarantine quarantine;
  quarantine.crashed({.ran = {1, 2}, .without_output = {2}, .began_us = 1'000'000});
  quarantine.step_ended();
  EXPECT_FALSE(quarantine.end_rest_if_over(61'000'000));
  quarantine.crashed({});
  EXPECT_TRUE(quarantine.holds_back(2)) << "a worker that crashes while nothing runs ends no rest";
  EXPECT_FALSE(quarantine.end_rest_if_over(70'999'999));
  EXPECT_TRUE(quarantine.end_rest_if_over(71'000'000));
}

TEST(Quarantine, NoRequestRestsIfNoneHadOutput) {
  Quarantine quarantine;
  quarantine.crashed({.ran = {1, 2}, .without_output = {1, 2}});
  EXPECT_FALSE(quarantine.holds_back(1));
  EXPECT_FALSE(quarantine.end_rest());
}

TEST(Quarantine, ARequestThatRanBesideOneThatHasEndedWasNotAlone) {
  Quarantine quarantine;
  quarantine.crashed({.ran = {1}});
  quarantine.crashed({.ran = {1}});
  EXPECT_EQ(quarantine.solo_request(), RequestId{1});
  EXPECT_FALSE(quarantine.crashed({.ran = {1}, .ended_ran = true}));
  EXPECT_EQ(quarantine.crashed({.ran = {1}}), RequestId{1});
}

TEST(Quarantine, ARequestThatEndsMakesPlaceForTheNext) {
  Quarantine quarantine;
  quarantine.crashed({.ran = {1, 2, 3, 4}});
  quarantine.crashed({.ran = {1, 2, 3, 4}});
  quarantine.forget(1);
  quarantine.forget(2);
  EXPECT_EQ(quarantine.solo_request(), RequestId{3});
  quarantine.forget(3);
  EXPECT_EQ(quarantine.solo_request(), RequestId{4});
  quarantine.forget(4);
  EXPECT_TRUE(quarantine.is_empty());
}

}  // namespace
}  // namespace pagoda::scheduling

#include "engine/scheduling/quarantine.hpp"

#include <algorithm>
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
      if (const auto blamed = quarantine.crashed(ran)) return blamed;
    }
    return std::nullopt;
  }

  Quarantine quarantine;
  std::set<RequestId> live;
  std::set<RequestId> culprits;
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
  EXPECT_FALSE(quarantine.crashed({1, 2, 3}));
  EXPECT_TRUE(quarantine.is_empty());
  EXPECT_FALSE(quarantine.crashed({3, 4}));
  EXPECT_EQ(quarantine.solo_request(), RequestId{3});
  EXPECT_TRUE(quarantine.holds_back(4));
}

TEST(Quarantine, HalfOfTheQuarantinedRequestsRunAndOthersRunBesideThem) {
  Quarantine quarantine;
  quarantine.crashed({1, 2, 3, 4});
  quarantine.crashed({1, 2, 3, 4, 5});
  EXPECT_EQ(quarantine.on_trial().size(), 2U);
  for (const RequestId id : {1U, 2U, 5U}) EXPECT_FALSE(quarantine.holds_back(id));
  for (const RequestId id : {3U, 4U}) EXPECT_TRUE(quarantine.holds_back(id));
  quarantine.trial_passed();
  for (const RequestId id : {1U, 3U, 4U}) EXPECT_FALSE(quarantine.holds_back(id)) << "the next two are on trial";
  quarantine.crashed({1, 3, 4});
  EXPECT_EQ(quarantine.solo_request(), RequestId{3});
  for (const RequestId id : {1U, 4U, 5U}) EXPECT_TRUE(quarantine.holds_back(id));
}

TEST(Quarantine, ARequestThatRanBesideOneThatHasEndedWasNotAlone) {
  Quarantine quarantine;
  quarantine.crashed({1});
  quarantine.crashed({1});
  EXPECT_EQ(quarantine.solo_request(), RequestId{1});
  EXPECT_FALSE(quarantine.crashed({1}, /*ended_ran=*/true));
  EXPECT_EQ(quarantine.crashed({1}), RequestId{1});
}

TEST(Quarantine, ARequestThatEndsMakesPlaceForTheNext) {
  Quarantine quarantine;
  quarantine.crashed({1, 2, 3, 4});
  quarantine.crashed({1, 2, 3, 4});
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

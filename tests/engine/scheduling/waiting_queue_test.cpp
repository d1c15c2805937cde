#include "engine/scheduling/waiting_queue.hpp"

#include <deque>
#include <map>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "tests/engine/scheduling/queue_order.hpp"

namespace pagoda::scheduling {
namespace {

QueueEntry queued(RequestId id, std::int64_t priority = 0, std::string user = "", std::int64_t tokens = 10) {
  QueueEntry made;
  made.id = id;
  made.priority = priority;
  made.user = std::move(user);
  made.num_prompt_tokens = tokens;
  return made;
}

TEST(WaitingQueue, FcfsServesByArrivalAndPutsAPreemptedGroupBackInItsPlace) {
  const auto queue = make_waiting_queue(SchedulingPolicy::fcfs);
  for (RequestId id = 1; id <= 3; ++id) queue->push(queued(id, -static_cast<std::int64_t>(id)));
  queue->erase(queued(1, -1));
  EXPECT_EQ(order(*queue), (std::vector<RequestId>{2, 3}));
  queue->push(queued(1, -1));
  EXPECT_EQ(order(*queue), (std::vector<RequestId>{1, 2, 3}));
  EXPECT_TRUE(queue->runs_before(queued(1), queued(2)));
}

TEST(WaitingQueue, PriorityServesTheLowerNumberFirstAndArrivalWithin) {
  const auto queue = make_waiting_queue(SchedulingPolicy::priority);
  queue->push(queued(1, 5));
  queue->push(queued(2, -1));
  queue->push(queued(3, 5));
  queue->push(queued(4, 0));
  EXPECT_EQ(order(*queue), (std::vector<RequestId>{2, 4, 1, 3}));
  EXPECT_TRUE(queue->runs_before(queued(9, 0), queued(1, 5)));
}

TEST(WaitingQueue, FairAlternatesBetweenTenantsWhateverTheirQueues) {
  const auto queue = make_waiting_queue(SchedulingPolicy::fair);
  for (RequestId id = 1; id <= 100; ++id) queue->push(queued(id, 0, "many"));
  queue->push(queued(101, 0, "one"));
  queue->charge(queued(1, 0, "many"), 50);
  EXPECT_EQ(order(*queue).front(), 101U);
  EXPECT_EQ(order(*queue).size(), 101U);
  // With equal counters, tenants alternate: each visited prompt counts for its tenant.
  const auto even = make_waiting_queue(SchedulingPolicy::fair);
  for (RequestId id = 1; id <= 3; ++id) even->push(queued(id, 0, "a"));
  for (RequestId id = 4; id <= 6; ++id) even->push(queued(id, 0, "b"));
  EXPECT_EQ(order(*even), (std::vector<RequestId>{1, 4, 2, 5, 3, 6}));
}

TEST(WaitingQueue, FairGivesAbsentTenantsNoCredit) {
  const auto queue = make_waiting_queue(SchedulingPolicy::fair);
  queue->push(queued(1, 0, "busy"));
  queue->charge(queued(1, 0, "busy"), 1'000'000);
  queue->push(queued(2, 0, "late"));
  queue->charge(queued(2, 0, "late"), 15);  // one prompt, after which it is the other tenant's turn
  queue->push(queued(3, 0, "late"));
  EXPECT_EQ(order(*queue).front(), 1U);
}

TEST(WaitingQueue, FairLiftsWhoComesWhileNobodyWaits) {
  const auto queue = make_waiting_queue(SchedulingPolicy::fair);
  const auto of = [](RequestId id, const char* user) { return QueueEntry{id, 0, user, 100, 0}; };
  // "busy" runs alone, with an empty queue, when another tenant with an unknown name comes.
  queue->push(of(1, "busy"));
  queue->erase(of(1, "busy"));
  queue->charge(of(1, "busy"), 1'000'000);
  for (RequestId id = 2; id < 5002; ++id) queue->push(of(id, "late"));
  queue->push(of(5002, "busy"));
  int before = 0;
  queue->visit_in_order([&](RequestId id) { return id != 5002 && ++before > 0; });
  EXPECT_LE(before, 1);
}

TEST(WaitingQueue, FairStillServesInTurnsAfterManyTenantsHaveComeAndGone) {
  const auto queue = make_waiting_queue(SchedulingPolicy::fair);
  queue->charge(queued(0, 0, "heavy"), 1'000'000'000);
  RequestId id = 1;
  for (int i = 0; i < 200'000; ++i, ++id) {
    const auto once = queued(id, 0, "tenant " + std::to_string(i));
    queue->push(once);
    queue->erase(once);
    queue->charge(once, 10);
  }
  queue->push(queued(id, 0, "tenant 199999"));
  queue->push(queued(id + 1, 0, "heavy"));
  EXPECT_EQ(order(*queue).front(), id);  // the tenant that was served most is remembered
}

TEST(WaitingQueue, FairVisitsInTheOrderInWhichOneTenantAfterTheOtherIsServed) {
  const auto queue = make_waiting_queue(SchedulingPolicy::fair);
  std::mt19937_64 random(7);
  std::map<std::string, std::int64_t> served;
  std::map<std::string, std::deque<QueueEntry>> waiting;
  for (RequestId id = 1; id <= 500; ++id) {
    const auto made = queued(id, 0, "tenant " + std::to_string(random() % 60), 1 + static_cast<int>(random() % 4));
    queue->push(made);
    served.try_emplace(made.user, 0);
    waiting[made.user].push_back(made);
  }
  for (auto& [user, tokens] : served) {
    tokens = static_cast<std::int64_t>(random() % 5);  // many tenants have equal counters
    queue->charge(queued(0, 0, user), tokens);
  }
  // Some are served or aborted, and some of these come back.
  std::size_t num_waiting = 500;
  for (auto& [user, entries] : waiting) {
    for (int i = static_cast<int>(random() % 3); i > 0 && !entries.empty(); --i) {
      const QueueEntry gone = entries[random() % 2 == 0 ? 0 : entries.size() / 2];
      queue->erase(gone);
      if (random() % 2 == 0) {
        queue->put_back(gone);
        continue;
      }
      std::erase_if(entries, [&](const QueueEntry& entry) { return entry.id == gone.id; });
      --num_waiting;
    }
  }
  std::vector<RequestId> expected;
  while (expected.size() < num_waiting) {
    const std::string* next = nullptr;
    const auto order_of = [&](const std::string& user) { return std::pair(served[user], waiting[user].front().id); };
    for (const auto& [user, tokens] : served) {
      if (!waiting[user].empty() && (next == nullptr || order_of(user) < order_of(*next))) next = &user;
    }
    expected.push_back(waiting[*next].front().id);
    served[*next] += waiting[*next].front().num_prompt_tokens;
    waiting[*next].pop_front();
  }
  EXPECT_EQ(order(*queue), expected);
}

TEST(WaitingQueue, FairServesTheTenantThatWaitsLongestOfThoseThatWereServedAsMuch) {
  const auto queue = make_waiting_queue(SchedulingPolicy::fair);
  queue->push(queued(1, 0, "zoe"));
  // Each that comes new has her counter, and a name before hers.
  for (RequestId id = 2; id < 10; ++id) {
    const auto entry = queued(id, 0, "alice " + std::to_string(id));
    queue->push(entry);
    EXPECT_EQ(order(*queue).front(), 1U);
    EXPECT_TRUE(queue->comes_in_before(queued(1, 0, "zoe"), entry));
    EXPECT_FALSE(queue->comes_in_before(entry, queued(1, 0, "zoe")));
  }
}

TEST(WaitingQueue, FairDoesNotLiftATenantWhoseGroupLosesItsMemory) {
  const auto queue = make_waiting_queue(SchedulingPolicy::fair);
  queue->push(queued(2, 0, "light"));
  queue->erase(queued(2, 0, "light"));  // it runs
  queue->push(queued(1, 0, "heavy"));
  queue->charge(queued(1, 0, "heavy"), 1000);
  queue->put_back(queued(2, 0, "light"));  // it was served little while it ran
  queue->charge(queued(2, 0, "light"), 100);
  EXPECT_EQ(order(*queue), (std::vector<RequestId>{2, 1}));
}

TEST(WaitingQueue, FairForgetsNoTokensOfATenantThatRunsAmongManyNames) {
  const auto queue = make_waiting_queue(SchedulingPolicy::fair);
  for (RequestId id = 1; id <= 2; ++id) {
    const std::string user = id == 1 ? "runs" : "waits";
    queue->push(queued(id, 0, user));
    queue->charge(queued(id, 0, user), 1'000'000);
  }
  queue->erase(queued(1, 0, "runs"));
  for (RequestId id = 10; id < 5000; ++id) {
    const QueueEntry once = queued(id, 0, "once" + std::to_string(id));
    queue->push(once);
    queue->erase(once);
  }
  queue->charge(queued(1, 0, "runs"), 1);
  queue->put_back(queued(1, 0, "runs"));
  EXPECT_EQ(order(*queue), (std::vector<RequestId>{2, 1})) << "it has had one token more";
}

TEST(WaitingQueue, VisitingStopsWhenToldAndErasingTwiceIsHarmless) {
  for (const auto policy : {SchedulingPolicy::fcfs, SchedulingPolicy::priority, SchedulingPolicy::fair}) {
    const auto queue = make_waiting_queue(policy);
    for (RequestId id = 1; id <= 5; ++id) queue->push(queued(id));
    int visited = 0;
    queue->visit_in_order([&](RequestId) { return ++visited < 2; });
    EXPECT_EQ(visited, 2);
    queue->erase(queued(3));
    queue->erase(queued(3));
    EXPECT_EQ(queue->size(), 4U);
  }
}

}  // namespace
}  // namespace pagoda::scheduling

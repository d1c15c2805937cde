// Tests tenants that share an engine under the fair policy.

#include <algorithm>

#include <gtest/gtest.h>

#include "tests/engine/scheduling/service.hpp"

namespace pagoda::scheduling {
namespace {

TEST(FairPolicy, ATenantWithAHundredRequestsDoesNotStarveOneWithOne) {
  Service fair(config_of(SchedulingPolicy::fair));
  Service fcfs(config_of(SchedulingPolicy::fcfs));
  for (Service* service : {&fair, &fcfs}) {
    for (RequestId id = 1; id <= 100; ++id) service->add(id, 8, 8, 0, "many");
    for (int i = 0; i < 4; ++i) service->step();
    service->add(101, 8, 8, 0, "one");
    service->run();
    ASSERT_EQ(service->finished.size(), 101U);
  }
  EXPECT_LE(fair.place_of(101), 8U) << "at most the rows that ran and those admitted with it";
  EXPECT_EQ(fcfs.place_of(101), 100U);
}

TEST(FairPolicy, TenantsShareTheTokensEvenlyWhateverTheyAskFor) {
  Service service(config_of(SchedulingPolicy::fair));
  RequestId id = 0;
  for (int i = 0; i < 100; ++i) service.add(++id, 8, 8, 0, "many");
  for (int i = 0; i < 20; ++i) service.add(++id, 8, 8, 0, "few");
  while (service.finished.size() < 40) service.step();
  const auto few = std::ranges::count_if(service.finished, [](RequestId r) { return r > 100; });
  EXPECT_GE(few, 16);
  EXPECT_LE(few, 20);
}

TEST(FairPolicy, TokensThatAreComputedAgainAreNotChargedToTheirTenant) {
  Service service(config_of(SchedulingPolicy::fair, 1),
                  {.layout = KvLayout::uniform(4), .num_device_blocks = 1000, .enable_prefix_caching = false});
  service.add(1, 250, 1, 0, "other");
  service.add(2, 100, 60, 0, "unlucky");
  service.add(3, 10, 1, 0, "other");
  service.add(4, 10, 1, 0, "unlucky");
  while (service.num_tokens[2] < 3) ASSERT_TRUE(service.step());
  // Its prompt is recomputed ten times: 1,000 tokens. The other tenant was served 251 in total.
  for (int i = 0; i < 10; ++i) {
    service.step();
    service.lose_worker(/*crashes=*/false);
  }
  service.run();
  EXPECT_LT(service.place_of(2), service.place_of(3));
}

TEST(FairPolicy, WhatAPreemptionCostsIsNotChargedToTheTenantThatLosesItsMemory) {
  Service service(config_of(SchedulingPolicy::fair, 64),
                  {.layout = KvLayout::uniform(16), .num_device_blocks = 60, .enable_prefix_caching = false});
  constexpr RequestId kLate = 9;
  for (RequestId id = 1; id < kLate; ++id) service.add(id, 16, 60, 0, "early");
  service.add(kLate, 300, 300, 0, "late");
  while (service.finished.size() < 8 || service.num_tokens[kLate] < 60) ASSERT_TRUE(service.step());
  ASSERT_GT(service.num_preemptions[kLate], 0);
  // Served: 8 * (16 + 60) tokens of one tenant; 300 + 60 of the other, which computed its 300 and more twice.
  service.add(10, 100, 1, 0, "late");
  service.add(11, 100, 1, 0, "early");  // with equal counters it would come first by its name
  EXPECT_EQ(service.head_of_queue(), 10U);
}

TEST(FairPolicy, ARequestThatLosesItsMemoryComesBackBeforeThoseOfATenantThatWasServedMore) {
  Service service(config_of(SchedulingPolicy::fair, 1));
  service.add(1, 250, 1, 0, "a heavy tenant");
  service.add(2, 10, 60, 0, "light");
  service.add(3, 10, 1, 0, "a heavy tenant");
  while (service.num_tokens[2] < 3) ASSERT_TRUE(service.step());
  service.lose_worker(/*crashes=*/false);
  EXPECT_EQ(service.head_of_queue(), 2U) << "the light tenant was not away: with a raised counter its name comes last";
}

}  // namespace
}  // namespace pagoda::scheduling

#include "tests/engine/scheduling/service.hpp"

namespace pagoda::scheduling {
namespace {

using view::RequestState;

TEST(Queues, ListsWhoRunsThenWhoWaitsAndTheStepsInFlight) {
  Service service(config_of(SchedulingPolicy::fcfs, 2));
  service.add(1, 8, 20);
  service.add(2, 8, 20, 0, {}, 1);
  service.add(3, 8, 20, 7);
  service.now = 500;
  service.plan();
  auto queues = service.queues();
  ASSERT_EQ(queues.requests.size(), 3U);
  EXPECT_EQ(queues.requests[0].id, 1U);
  EXPECT_EQ(queues.requests[0].state, RequestState::running);
  EXPECT_EQ(queues.requests[0].prompt_tokens, 8);
  EXPECT_EQ(queues.requests[0].max_tokens, 20);
  EXPECT_EQ(queues.requests[0].computed_tokens, 0);
  EXPECT_EQ(queues.requests[0].first_scheduled_us, 500);
  EXPECT_EQ(queues.requests[2].id, 3U);
  EXPECT_EQ(queues.requests[2].state, RequestState::waiting);
  EXPECT_EQ(queues.requests[2].priority, 7);
  EXPECT_EQ(queues.requests[2].first_scheduled_us, -1);
  ASSERT_EQ(queues.steps_in_flight.size(), 1U);
  EXPECT_EQ(queues.steps_in_flight[0].num_rows, 2);
  EXPECT_EQ(queues.steps_in_flight[0].num_tokens, 16);

  service.complete();
  queues = service.queues();
  EXPECT_EQ(queues.requests[0].computed_tokens, 8);
  EXPECT_EQ(queues.requests[0].generated_tokens, 1);
  service.run();
  EXPECT_TRUE(service.queues().requests.empty());
}

TEST(Queues, ListNoMoreOfAStateThanTheyMay) {
  Service service(config_of(SchedulingPolicy::fcfs, 2));
  for (RequestId id = 1; id <= view::kMaxRequests + 50; ++id) service.add(id, 8, 20);
  service.plan();
  const auto requests = service.queues().requests;
  EXPECT_EQ(requests.size(), 2 + view::kMaxRequests);
}

}  // namespace
}  // namespace pagoda::scheduling

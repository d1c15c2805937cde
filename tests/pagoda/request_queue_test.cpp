// How the engine takes in requests when its queue is full.

#include <atomic>
#include <chrono>
#include <future>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "pagoda/engine.hpp"
#include "tests/pagoda/test_models.hpp"

namespace pagoda {
namespace {

using test::greedy_request;

std::unique_ptr<Engine> engine_with_queue_of(std::int64_t max_queued_requests) {
  EngineConfig config;
  config.model = test::demo_model();
  config.threads = 1;
  config.max_queued_requests = max_queued_requests;
  auto engine = Engine::create(config);
  EXPECT_TRUE(engine) << engine.error().message;
  return engine ? std::move(*engine) : nullptr;
}

TEST(RequestQueue, GeneratesMoreRequestsThanItQueues) {
  const auto engine = engine_with_queue_of(3);
  ASSERT_TRUE(engine);
  std::vector<GenerateRequest> requests;
  for (int i = 0; i < 20; ++i) requests.push_back(greedy_request("Once upon a time", 1 + i));
  const auto results = engine->generate(requests);
  ASSERT_EQ(results.size(), 20U);
  for (std::size_t i = 0; i < results.size(); ++i) {
    ASSERT_TRUE(results[i]) << results[i].error().message;
    EXPECT_EQ(results[i]->usage.completion_tokens, static_cast<std::int64_t>(i) + 1);
  }
}

TEST(RequestQueue, APlaceInTheQueueIsFreeOnceAnEndIsTold) {
  const auto engine = engine_with_queue_of(1);
  ASSERT_TRUE(engine);
  for (int i = 0; i < 300; ++i) {
    std::promise<void> ended;
    const auto ticket = engine->submit(greedy_request("Once", 1), [&](const RequestOutput& output) {
      if (output.done || output.error) ended.set_value();
    });
    ASSERT_TRUE(ticket) << "request " << i << ": " << ticket.error().message;
    ended.get_future().wait();
  }
}

TEST(RequestQueue, WhoSubmitsWhenThereIsAPlaceIsNeverRefusedForWantOfOne) {
  const auto engine = engine_with_queue_of(1);
  ASSERT_TRUE(engine);
  constexpr int kEach = 100;
  std::atomic<int> done = 0;
  const auto submit_many = [&] {
    for (int i = 0; i < kEach; ++i) {
      const auto ticket = engine->submit_when_free(greedy_request("Once", 1), [&](const RequestOutput& output) {
        if (output.done) ++done;
      });
      ASSERT_TRUE(ticket) << ticket.error().message;
    }
  };
  const auto begin = std::chrono::steady_clock::now();
  std::thread other(submit_many);
  submit_many();
  other.join();
  EXPECT_TRUE(engine->generate(greedy_request("Once", 1)));  // has the one place, so all others have ended
  EXPECT_EQ(done, 2 * kEach);
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(60))
      << "places are taken when they are free";
}

}  // namespace
}  // namespace pagoda

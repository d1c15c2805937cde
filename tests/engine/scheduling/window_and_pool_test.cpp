// Tests sequences that are longer than the pool, in layers with a sliding window.

#include <vector>

#include <gtest/gtest.h>

#include "tests/engine/scheduling/service.hpp"

namespace pagoda::scheduling {
namespace {

constexpr std::int32_t kWindow = 64;
constexpr std::int32_t kBlocks = 8;

Service service_with_window(std::int32_t max_num_batched_tokens, bool chunked = true) {
  const KvLayout layout = KvLayout::uniform(16, kWindow);
  SchedulerConfig config = config_of(SchedulingPolicy::fcfs, 8);
  config.max_num_batched_tokens = max_num_batched_tokens;
  config.pipeline_depth = 2;
  config.enable_chunked_prefill = chunked;
  return Service(config, {.layout = layout, .num_device_blocks = kBlocks, .enable_prefix_caching = false});
}

TEST(SlidingWindow, APromptLongerThanThePoolIsAnsweredWhole) {
  for (const std::int32_t budget : {32, 384}) {
    Service service = service_with_window(budget);
    service.add(1, 400, 400);
    service.run();
    EXPECT_EQ(service.num_tokens[1], 400) << "budget " << budget;
  }
}

TEST(SlidingWindow, ASequenceThatHasOutgrownThePoolGoesOnBehindADeadWorker) {
  for (const bool chunked : {true, false}) {
    Service service = service_with_window(384, chunked);
    service.add(1, 20, 400);
    while (service.num_tokens[1] < 300) ASSERT_TRUE(service.step());
    service.lose_worker();
    service.run();
    EXPECT_EQ(service.num_tokens[1], 400) << (chunked ? "with" : "without") << " chunked prefill";
  }
}

}  // namespace
}  // namespace pagoda::scheduling

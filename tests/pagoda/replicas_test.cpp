// Tests an engine of several replicas in this process.

#include <memory>
#include <set>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "pagoda/engine.hpp"
#include "tests/pagoda/test_models.hpp"
#include "tests/support/split_memory_device.hpp"

namespace pagoda {
namespace {

EngineConfig replicas(std::int32_t count) {
  EngineConfig config;
  config.model = test::demo_model();
  config.threads = 3;
  config.max_num_seqs = 16;
  config.num_device_blocks = 200;
  config.data_parallel_size = count;
  return config;
}

std::vector<GenerateRequest> mixed_requests() {
  const std::vector<std::string> texts = {"Once upon a time", "The little fox", "One day, Lily went to the park and",
                                          "It was raining. The old bear sat in his house and looked out of the"};
  std::vector<GenerateRequest> requests;
  for (int i = 0; i < 40; ++i) {
    GenerateRequest request = test::greedy_request(texts[static_cast<std::size_t>(i) % texts.size()], 10 + i % 20);
    SamplingParams& sampling = request.sampling;
    if (i % 3 != 0) {
      sampling.temperature = 0.9;
      sampling.seed = static_cast<std::uint64_t>(i);
    }
    if (i % 5 == 1) sampling.n = 2;
    if (i % 7 == 2) sampling.prompt_logprobs = 1;
    requests.push_back(std::move(request));
  }
  return requests;
}

std::vector<std::vector<TokenIds>> tokens_of(Engine& engine) {
  std::vector<std::vector<TokenIds>> all;
  for (const auto& result : engine.generate(mixed_requests())) {
    auto& outputs = all.emplace_back();
    if (!result) {
      ADD_FAILURE() << result.error().message;
      continue;
    }
    for (const auto& output : result->outputs) outputs.push_back(output.token_ids);
  }
  return all;
}

TEST(Replicas, GiveTheTokensOfOneWithTheSameCopiesOfWeights) {
  for (const char* quantize : {"none", "int8"}) {
    std::vector<std::vector<TokenIds>> expected;
    for (const std::int32_t count : {1, 2, 3}) {
      auto config = replicas(count);
      config.quantize = quantize;
      config.weight_memory = "copied";
      const auto engine = Engine::create(config);
      ASSERT_TRUE(engine) << engine.error().message;
      const auto tokens = tokens_of(**engine);
      if (count == 1) expected = tokens;
      EXPECT_EQ(tokens, expected) << count << " replicas, quantize " << quantize;
      const auto stats = (*engine)->stats();
      ASSERT_EQ(std::ssize(stats.replicas), count);
      EXPECT_EQ(stats.device_blocks_total, 200 * count);
      const auto info = (*engine)->model_info();
      EXPECT_EQ(info.num_device_blocks, 200 * count);
      EXPECT_EQ(info.num_replicas, count);
    }
  }
}

TEST(Replicas, DivideTheThreads) {
  const auto device_of = [](std::int32_t count, std::int32_t threads) {
    auto config = replicas(count);
    config.threads = threads;
    const auto engine = Engine::create(config);
    return engine ? (*engine)->model_info().device : engine.error().message;
  };
  EXPECT_TRUE(device_of(3, 3).starts_with("3 x cpu ")) << device_of(3, 3);
  EXPECT_TRUE(device_of(3, 3).ends_with(", 1 thread"));
  const std::string unequal = device_of(2, 3);
  EXPECT_NE(unequal.find(", 2 threads; cpu "), std::string::npos) << unequal;
  EXPECT_TRUE(unequal.ends_with(", 1 thread")) << unequal;
}

TEST(Replicas, NeedAThreadEachAndADeviceEach) {
  auto config = replicas(64);
  config.threads = 0;  // the machine's
  const auto few = Engine::create(config);
  if (!few) {
    EXPECT_EQ(few.error().code, ErrorCode::bad_config);
    EXPECT_EQ(few.error().param, "data_parallel_size");
    EXPECT_NE(few.error().message.find("a CPU thread of its own"), std::string::npos) << few.error().message;
  }
  const auto shared = Engine::create(replicas(2), {.device = std::make_shared<test::SplitMemoryDevice>()});
  ASSERT_FALSE(shared);
  EXPECT_EQ(shared.error().param, "data_parallel_size");
}

}  // namespace
}  // namespace pagoda

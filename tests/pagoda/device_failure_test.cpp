// A device that fails under live requests, through the whole engine.

#include <atomic>
#include <chrono>
#include <functional>
#include <future>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "pagoda/engine.hpp"
#include "tests/pagoda/golden_model.hpp"
#include "tests/pagoda/test_models.hpp"
#include "tests/support/cuda_emulator/emulated_device.hpp"
#include "tests/support/split_memory_device.hpp"

namespace pagoda {
namespace {

using namespace std::chrono_literals;

std::unique_ptr<Engine> engine_on(std::shared_ptr<kernels::Device> device,
                                  const std::function<void(EngineConfig&)>& change = {}) {
  EngineConfig config;
  config.model = test::demo_model();
  config.device = "cuda";
  config.enforce_eager = true;
  config.max_num_seqs = 16;
  config.max_num_batched_tokens = 64;
  if (change) change(config);
  auto engine = Engine::create(config, {.device = std::move(device)});
  EXPECT_TRUE(engine) << engine.error().message;
  return engine ? std::move(*engine) : nullptr;
}

GenerateRequest request(std::uint64_t seed, std::int64_t max_tokens) {
  GenerateRequest request;
  request.prompt = seed % 2 == 0 ? "Once upon a time" : "It was raining. The old bear sat in his house and looked";
  request.sampling.max_tokens = max_tokens;
  request.sampling.ignore_eos = true;
  request.sampling.seed = seed;
  if (seed % 3 == 1) request.sampling.n = 2;
  if (seed % 4 == 3) request.sampling.prompt_logprobs = 1;
  if (seed % 5 == 2) {
    request.sampling.use_beam_search = true;
    request.sampling.n = 3;
    request.sampling.temperature = 0;
  }
  return request;
}

/// Live requests and how each of them ended.
class Requests {
 public:
  Requests(Engine& engine, int count, std::int64_t max_tokens) : ends_(static_cast<std::size_t>(count)) {
    for (std::size_t i = 0; i < ends_.size(); ++i) {
      const auto ticket = engine.submit(request(i, max_tokens), [this, i](const RequestOutput& output) {
        if (!begun_.exchange(true)) first_.set_value();
        if (!output.done && !output.error) return;
        const std::lock_guard lock(mutex_);
        ends_[i].push_back(output);
        if (++num_ended_ == ends_.size()) all_.set_value();
      });
      EXPECT_TRUE(ticket);
    }
    first_.get_future().wait();
  }

  bool all_end() { return all_.get_future().wait_for(60s) == std::future_status::ready; }
  /// Each ended once: with its tokens, or the error that it is to have.
  std::vector<TokenIds> tokens() {
    std::vector<TokenIds> all;
    for (const auto& end : ends()) {
      EXPECT_FALSE(end.error) << end.error->message;
      for (const SequenceResult& output : end.done.value_or(RequestResult{}).outputs) all.push_back(output.token_ids);
    }
    return all;
  }
  std::vector<Error> errors() {
    std::vector<Error> all;
    for (const auto& end : ends()) {
      EXPECT_TRUE(end.error);
      if (end.error) all.push_back(*end.error);
    }
    return all;
  }

 private:
  std::vector<RequestOutput> ends() {
    const std::lock_guard lock(mutex_);
    std::vector<RequestOutput> all;
    for (const auto& end : ends_) {
      EXPECT_EQ(end.size(), 1U);
      all.push_back(end.at(0));
    }
    return all;
  }

  std::mutex mutex_;
  std::vector<std::vector<RequestOutput>> ends_;
  std::size_t num_ended_ = 0;
  std::atomic<bool> begun_ = false;
  std::promise<void> first_;
  std::promise<void> all_;
};

/// The engine has ended because of its device and says so from now on.
void expect_failed(Engine& engine, Requests& live, const std::string& why) {
  ASSERT_TRUE(live.all_end());
  for (const Error& error : live.errors()) {
    EXPECT_EQ(error.code, ErrorCode::device_failed);
    EXPECT_NE(error.message.find(why), std::string::npos) << error.message;
  }
  for (int i = 0; i < 3; ++i) {
    const auto refused = engine.generate(request(1, 5));
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().code, ErrorCode::device_failed);
    EXPECT_NE(refused.error().message.find(why), std::string::npos) << refused.error().message;
  }
  EXPECT_NE(engine.stats().health.find(why), std::string::npos) << engine.stats().health;
  EXPECT_FALSE(engine.tokenize("Once"));
  EXPECT_EQ(engine.model_info().max_num_seqs, 16);
}

TEST(DeviceFailure, AWorkerWhoseStreamFailsIsReplacedAndTheTokensStayTheSame) {
  constexpr int kRequests = 12;
  constexpr std::int64_t kTokens = 40;
  std::vector<TokenIds> expected;
  {
    const auto engine = engine_on(std::make_shared<test::SplitMemoryDevice>());
    ASSERT_TRUE(engine);
    Requests requests(*engine, kRequests, kTokens);
    ASSERT_TRUE(requests.all_end());
    expected = requests.tokens();
  }
  for (const bool eager : {true, false}) {
    for (const int depth : {1, 2}) {
      const auto device = std::make_shared<test::SplitMemoryDevice>();
      const auto engine = engine_on(device, [&](EngineConfig& c) {
        c.pipeline_depth = depth;
        c.enforce_eager = eager;
      });
      ASSERT_TRUE(engine);
      int broken = 0;
      for (const int count : {0, 7, 100, 500}) {
        SCOPED_TRACE("eager " + std::to_string(eager) + ", depth " + std::to_string(depth) + ", op " +
                     std::to_string(count));
        device->break_after("pagoda-step", count, true);
        Requests requests(*engine, kRequests, kTokens);
        ASSERT_TRUE(requests.all_end());
        EXPECT_EQ(requests.tokens(), expected);
        EXPECT_EQ(device->num_streams_broken(), ++broken);
        const EngineStats stats = engine->stats();
        EXPECT_EQ(stats.worker_restarts_total, broken);
        EXPECT_EQ(stats.requests_failed_total, 0);
        EXPECT_EQ(stats.health, "ok");
      }
    }
  }
}

TEST(DeviceFailure, ADeviceThatGivesNoStreamAnyMoreEndsTheEngineWithItsReason) {
  for (const int count : {0, 300}) {
    const auto device = std::make_shared<test::SplitMemoryDevice>();
    const auto engine = engine_on(device);
    ASSERT_TRUE(engine);
    Requests live(*engine, 8, 900);
    const auto broken_at = std::chrono::steady_clock::now();
    device->break_after("pagoda-step", count, false);
    expect_failed(*engine, live, "the device was told to break");
    EXPECT_LT(std::chrono::steady_clock::now() - broken_at, 20s);
  }
}

TEST(DeviceFailure, StreamsThatFailOneAfterTheOtherFailTheRequestsThatRanAlone) {
  const auto device = std::make_shared<test::SplitMemoryDevice>();
  const auto engine = engine_on(device);
  ASSERT_TRUE(engine);
  Requests live(*engine, 4, 900);
  constexpr int kAlways = 1000;
  device->break_after("pagoda-step", 0, true, kAlways);
  ASSERT_TRUE(live.all_end());
  EXPECT_EQ(live.errors().size(), 4U);
  const auto refused = engine->generate(request(1, 5));
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::internal);
  EXPECT_LT(device->num_streams_broken(), 5 * 8);
  device->break_after("pagoda-step", 0, true, 0);
  EXPECT_TRUE(engine->generate(request(1, 5)));
  EXPECT_EQ(engine->stats().health, "ok");
}

TEST(DeviceFailure, StreamsThatFailOneAfterTheOtherEndTheEngine) {
  const auto device = std::make_shared<test::SplitMemoryDevice>();
  const auto engine = engine_on(device);
  ASSERT_TRUE(engine);
  constexpr int kAlways = 1000;
  device->break_after("pagoda-step", 0, true, kAlways);
  Result<RequestResult> refused;
  for (int i = 0; i < 60; ++i) refused = engine->generate(request(1, 5));
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::device_failed);
  EXPECT_LT(device->num_streams_broken(), 30);
  EXPECT_NE(engine->stats().health, "ok");
}

TEST(DeviceFailure, BlocksThatWereNotMovedAreComputedAgainAndTheTokensStayTheSame) {
  constexpr int kRequests = 8;
  constexpr std::int64_t kTokens = 100;
  const auto swaps = [](EngineConfig& c) {
    c.block_size = 4;
    c.num_device_blocks = 90;
    c.num_host_blocks = 500;
    c.preemption_mode = PreemptionPolicy::swap;
  };
  std::vector<TokenIds> expected;
  for (const int broken_after : {-1, 0, 2, 4}) {
    SCOPED_TRACE("copy stream breaks after op " + std::to_string(broken_after));
    const auto device = std::make_shared<test::SplitMemoryDevice>();
    const auto engine = engine_on(device, swaps);
    ASSERT_TRUE(engine);
    if (broken_after >= 0) device->break_after("pagoda-copy", broken_after, true);
    Requests requests(*engine, kRequests, kTokens);
    ASSERT_TRUE(requests.all_end());
    if (broken_after < 0) {
      expected = requests.tokens();
      EXPECT_GT(engine->stats().preemptions_swap_total, 5);
      continue;
    }
    EXPECT_EQ(requests.tokens(), expected);
    EXPECT_EQ(device->num_streams_broken(), 1);
    EXPECT_EQ(engine->stats().worker_restarts_total, 1);
    EXPECT_EQ(engine->stats().health, "ok");
  }
}

TEST(DeviceFailure, ADeviceThatGivesNoCopyStreamAnyMoreEndsTheEngineWithItsReason) {
  const auto device = std::make_shared<test::SplitMemoryDevice>();
  const auto engine = engine_on(device, [](EngineConfig& c) {
    c.block_size = 4;
    c.num_device_blocks = 80;
    c.num_host_blocks = 500;
    c.preemption_mode = PreemptionPolicy::swap;
  });
  ASSERT_TRUE(engine);
  device->break_after("pagoda-copy", 2, false);
  Requests live(*engine, 8, 200);
  expect_failed(*engine, live, "the device was told to break");
}

TEST(DeviceFailure, ACudaDeviceIsLostWithItsFirstFault) {
  const test::ServableModel model("llama-mha-f32");
  auto device = cuda_emulator::create_emulated_cuda_device();
  ASSERT_TRUE(device);
  {
    const auto engine = engine_on(*device, [&](EngineConfig& c) {
      c.model = model.path();
      c.num_device_blocks = 64;
    });
    ASSERT_TRUE(engine);
    GenerateRequest endless;
    endless.prompt_token_ids = {{3, 4, 5}};
    endless.sampling.max_tokens = 100;
    endless.sampling.ignore_eos = true;
    std::promise<void> first;
    std::promise<Error> end;
    std::atomic<bool> begun = false;
    ASSERT_TRUE(engine->submit(endless, [&](const RequestOutput& output) {
      if (!begun.exchange(true)) first.set_value();
      EXPECT_FALSE(output.done);
      if (output.error) end.set_value(*output.error);
    }));
    first.get_future().wait();
    cuda_emulator::break_emulated_device();
    auto error = end.get_future();
    ASSERT_EQ(error.wait_for(60s), std::future_status::ready);
    EXPECT_EQ(error.get().code, ErrorCode::device_failed);
    const auto refused = engine->generate(endless);
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().code, ErrorCode::device_failed);
    EXPECT_NE(engine->stats().health.find("the device has failed"), std::string::npos) << engine->stats().health;
  }
  cuda_emulator::reset_emulated_device();
}

}  // namespace
}  // namespace pagoda

// One allocation of a request's life fails, another one each time: in the router, the tokenizer, the scheduler, the
// block manager, the worker, the stream's thread, the output processor or CAF itself, whichever makes it.

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <future>
#include <memory>
#include <new>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <spdlog/spdlog.h>

#include "io/memory_reserve.hpp"
#include "pagoda/engine.hpp"
#include "tests/preload/fail_allocation.hpp"

namespace pagoda {
namespace {

constexpr auto kPatience = std::chrono::seconds(120);

/// A request, for the name of a test.
struct Kind {
  const char* name;
  GenerateRequest (*make)();
};

GenerateRequest plain() {
  GenerateRequest request;
  request.prompt = "Once upon a time there was a little";
  request.sampling.max_tokens = 4;
  request.sampling.temperature = 0;
  return request;
}

GenerateRequest sampled() {
  auto request = plain();
  request.sampling.temperature = 0.8;
  request.sampling.seed = 7;
  request.sampling.n = 2;
  request.sampling.logprobs = 2;
  request.sampling.prompt_logprobs = 1;
  request.sampling.stop = {"the"};
  request.sampling.repetition_penalty = 1.1;
  return request;
}

GenerateRequest beams() {
  auto request = plain();
  request.sampling.use_beam_search = true;
  request.sampling.n = 2;
  request.sampling.best_of = 3;
  return request;
}

class AllocationFailureTest : public testing::TestWithParam<Kind> {
 protected:
  void SetUp() override {
    spdlog::set_level(spdlog::level::off);  // of engines that end
    test::allocation_control = &control_;
    start();
  }
  void TearDown() override {
    engine_.reset();
    test::allocation_control = nullptr;
    spdlog::set_level(spdlog::level::info);
  }

  void start() {
    EngineConfig config;
    config.model = std::string(PAGODA_SOURCE_DIR) + "/examples/models/pagoda-stories";
    config.threads = 2;
    config.max_num_seqs = 8;
    config.max_num_batched_tokens = 64;
    config.num_device_blocks = 64;
    auto engine = Engine::create(config);
    ASSERT_TRUE(engine) << engine.error().message;
    engine_ = std::move(*engine);
  }

  /// What a request brings, or its error, while the allocation `number` fails; 0: none does.
  std::string answer(std::int64_t number = 0) {
    const auto ask = [&]() -> std::string {
      auto request = GetParam().make();
      control_.failures = 0;
      control_.countdown = number;
      try {
        const auto result = engine_->generate(std::move(request));
        control_.countdown = 0;
        if (!result) return "error: " + result.error().message;
        std::string told;
        for (const auto& output : result->outputs) told += std::to_string(output.index) + output.text + "\n";
        return told;
      } catch (const std::bad_alloc&) {  // of the thread that asks
        control_.countdown = 0;
        return "error: no memory to ask";
      }
    };
    auto asked = std::async(std::launch::async, ask);
    if (asked.wait_for(kPatience) == std::future_status::ready) return asked.get();
    std::fprintf(stderr, "no answer when allocation %lld fails\n", static_cast<long long>(number));
    std::abort();  // the thread cannot be joined
  }

  static bool is_error(const std::string& answer) { return answer.starts_with("error: ") && answer.size() > 7; }

  test::AllocationControl control_{};
  std::unique_ptr<Engine> engine_;
};

TEST_P(AllocationFailureTest, HarmsNobodyWhileThereIsAReserve) {
  io::MemoryReserve reserve;
  const std::string expected = answer();
  ASSERT_FALSE(is_error(expected)) << expected;
  std::int64_t number = 1;
  for (;; ++number) {
    const std::string told = answer(number);
    if (control_.failures == 0) break;  // a request allocates less often
    ASSERT_EQ(told, expected) << "allocation " << number;
    ASSERT_FALSE(reserve.is_short());  // it is whole again
  }
  EXPECT_GT(number, 200);
  EXPECT_EQ(answer(), expected);
}

/// As where the reserve is used up. What is smaller are the nodes of CAF's and the standard library's own lists.
TEST_P(AllocationFailureTest, IsAnAnswerOrAnErrorWithoutAReserve) {
  control_.smallest = 256;
  const std::string expected = answer();
  ASSERT_FALSE(is_error(expected)) << expected;
  std::int64_t number = 1;
  int num_errors = 0;
  int num_ends = 0;
  for (;; ++number) {
    const std::string told = answer(number);
    if (control_.failures == 0) break;
    ASSERT_TRUE(told == expected || is_error(told)) << "allocation " << number << ": " << told;
    num_errors += told == expected ? 0 : 1;
    const std::string afterwards = answer();
    if (afterwards == expected) continue;
    ASSERT_TRUE(is_error(afterwards)) << "allocation " << number << ", then: " << afterwards;
    ASSERT_NE(engine_->stats().health, "ok") << "allocation " << number << ", then: " << afterwards;
    ++num_ends;
    engine_.reset();
    start();
  }
  std::printf("%lld allocations failed: %d errors, %d engines ended\n", static_cast<long long>(number - 1), num_errors,
              num_ends);
  EXPECT_GT(number, 10);
}

INSTANTIATE_TEST_SUITE_P(Requests, AllocationFailureTest,
                         testing::Values(Kind{"Plain", plain}, Kind{"Sampled", sampled}, Kind{"Beams", beams}),
                         [](const auto& kind) { return std::string(kind.param.name); });

}  // namespace
}  // namespace pagoda

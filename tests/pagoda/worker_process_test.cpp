// A device with memory of its own whose worker is a process: it plans that memory there, and may die.

#include <csignal>
#include <filesystem>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/grammar/compiled_grammar.hpp"
#include "pagoda/engine.hpp"
#include "tests/pagoda/test_models.hpp"
#include "tests/support/split_memory_device.hpp"
#include "tests/support/temporary_folder.hpp"

namespace pagoda {
namespace {

using testing::HasSubstr;

constexpr int kDeviceMib = 256;

EngineConfig config() {
  EngineConfig config;
  config.model = test::demo_model();
  config.device = "cuda";
  config.enforce_eager = true;
  config.max_num_seqs = 16;
  config.max_num_batched_tokens = 64;
  config.swap_space = 0.01;
  return config;
}

std::vector<std::string> worker_command(int device_mib = kDeviceMib) {
  return {PAGODA_BINARY_DIR "/bin/pagoda_split_worker", std::to_string(device_mib)};
}

Result<std::unique_ptr<Engine>> engine_of_processes(EngineConfig config, std::vector<std::string> command) {
  config.worker_processes = true;
  return Engine::create(config, {.worker_command = std::move(command)});
}

std::unique_ptr<Engine> engine_in_one_process(const EngineConfig& config) {
  auto device = std::make_shared<test::SplitMemoryDevice>(
      test::SplitMemoryDevice::Options{.device_bytes = std::size_t{kDeviceMib} << 20U});
  auto engine = Engine::create(config, {.device = std::move(device)});
  EXPECT_TRUE(engine) << engine.error().message;
  return std::move(*engine);
}

std::vector<GenerateRequest> requests() {
  std::vector<GenerateRequest> requests;
  for (std::uint64_t seed = 0; seed < 8; ++seed) {
    GenerateRequest request;
    request.prompt = seed % 2 == 0 ? "Once upon a time" : "It was raining. The old bear sat in his house and looked";
    request.sampling.max_tokens = 120;
    request.sampling.ignore_eos = true;
    request.sampling.seed = seed;
    if (seed % 3 == 1) request.sampling.n = 2;
    if (seed % 3 == 2) {
      request.sampling.ignore_eos = false;
      request.sampling.structured_outputs = {
          GrammarKind::regex, R"(\{"name": "[a-z]{3,40}", "a friend": (true|false)\})", {}};
    }
    requests.push_back(request);
  }
  return requests;
}

std::vector<TokenIds> answers_of(Engine& engine) {
  std::vector<TokenIds> tokens;
  for (const auto& result : engine.generate(requests())) {
    EXPECT_TRUE(result) << result.error().message;
    for (const SequenceResult& output : result.value_or(RequestResult{}).outputs) tokens.push_back(output.token_ids);
  }
  return tokens;
}

TEST(WorkerProcessOfAGpu, PlansTheMemoryThatItsProcessSees) {
  const auto alone = engine_in_one_process(config());
  const auto engine = engine_of_processes(config(), worker_command());
  ASSERT_TRUE(engine) << engine.error().message;
  const ModelInfo expected = alone->model_info();
  const ModelInfo info = (*engine)->model_info();
  EXPECT_THAT(info.device, HasSubstr("split memory"));
  EXPECT_GT(info.num_device_blocks, 100);
  EXPECT_EQ(info.num_device_blocks, expected.num_device_blocks);
  EXPECT_EQ(info.num_host_blocks, expected.num_host_blocks);
  EXPECT_EQ((*engine)->stats().device_blocks_total, info.num_device_blocks);
  EXPECT_EQ(answers_of(**engine), answers_of(*alone));
}

TEST(WorkerProcessOfAGpu, SizesThatAreToldHold) {
  EngineConfig sized = config();
  sized.num_device_blocks = 40;  // few, so that groups are swapped
  sized.num_host_blocks = 200;
  sized.block_size = 16;
  sized.preemption_mode = PreemptionPolicy::swap;
  const auto engine = engine_of_processes(sized, worker_command());
  ASSERT_TRUE(engine) << engine.error().message;
  EXPECT_EQ((*engine)->model_info().num_device_blocks, 40);
  EXPECT_EQ((*engine)->model_info().num_host_blocks, 200);
  EXPECT_EQ(answers_of(**engine), answers_of(*engine_in_one_process(config())));
  EXPECT_GT((*engine)->stats().preemptions_swap_total, 0);
}

TEST(WorkerProcessOfAGpu, OneThatIsKilledLosesNothingAndTheNextHasPoolsOfTheSameSize) {
  const auto expected = answers_of(*engine_in_one_process(config()));
  const auto engine = engine_of_processes(config(), worker_command());
  ASSERT_TRUE(engine) << engine.error().message;
  const auto num_blocks = (*engine)->stats().device_blocks_total;
  const std::int64_t first = (*engine)->stats().worker_pids.at(0);
  std::jthread killer([&] {
    while ((*engine)->stats().requests_running == 0) std::this_thread::yield();
    ::kill(static_cast<pid_t>(first), SIGKILL);
  });
  EXPECT_EQ(answers_of(**engine), expected);
  killer.join();
  while ((*engine)->stats().worker_restarts_total == 0) std::this_thread::yield();
  const EngineStats stats = (*engine)->stats();
  EXPECT_EQ(stats.worker_deaths_total, 1);
  EXPECT_EQ(stats.device_blocks_total, num_blocks);
  EXPECT_NE(stats.worker_pids.at(0), first);
  EXPECT_EQ(answers_of(**engine), expected);
}

TEST(WorkerProcessOfAGpu, ADeviceThatFailsForGoodCostsItsProcess) {
  const test::TemporaryFolder folder;
  auto command = worker_command();
  command.push_back((folder.path() / "broken").string());
  const auto engine = engine_of_processes(config(), command);
  ASSERT_TRUE(engine) << engine.error().message;
  EXPECT_EQ(answers_of(**engine), answers_of(*engine_in_one_process(config())));
  EXPECT_TRUE(std::filesystem::exists(command.back()));
  EXPECT_EQ((*engine)->stats().worker_restarts_total, 1);
  EXPECT_EQ((*engine)->stats().requests_failed_total, 0);
}

TEST(WorkerProcessOfAGpu, AModelThatDoesNotFitIsRefusedByTheNumbersOfTheProcess) {
  const auto engine = engine_of_processes(config(), worker_command(/*device_mib=*/4));
  ASSERT_FALSE(engine);
  EXPECT_EQ(engine.error().code, ErrorCode::out_of_memory);
  EXPECT_EQ(engine.error().param, "gpu_memory_utilization") << engine.error().message;
}

TEST(WorkerProcessOfAGpu, HoldsTheModelOnce) {
  EngineConfig twice = config();
  twice.standby_worker = true;
  const auto engine = engine_of_processes(twice, worker_command());
  ASSERT_FALSE(engine);
  EXPECT_EQ(engine.error().param, "standby_worker");
}

}  // namespace
}  // namespace pagoda

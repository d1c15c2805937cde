#include <cmath>
#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "engine/weights/copy_store.hpp"
#include "pagoda/engine.hpp"
#include "tests/pagoda/test_models.hpp"
#include "tests/support/split_memory_device.hpp"

namespace pagoda {
namespace {

std::unique_ptr<Engine> demo_engine(const std::function<void(EngineConfig&)>& change, const EngineSetup& setup = {}) {
  EngineConfig config;
  config.model = test::demo_model();
  config.threads = 2;
  config.max_num_seqs = 64;
  config.max_num_batched_tokens = 256;
  config.kv_cache_memory = 0.125;
  change(config);
  auto engine = Engine::create(config, setup);
  EXPECT_TRUE(engine) << engine.error().message;
  return engine ? std::move(*engine) : nullptr;
}

const std::vector<std::string> kPrompts = {
    "Once upon a time", "The little fox", "One day, Lily went to the park and",
    "It was raining. The old bear sat in his house and looked out of the window. He was sad because"};

GenerateRequest greedy(std::size_t i, std::int64_t max_tokens) {
  return test::greedy_request(kPrompts[i % kPrompts.size()], max_tokens);
}

std::vector<TokenIds> tokens_of(Engine& engine, std::size_t count) {
  std::vector<GenerateRequest> requests;
  for (std::size_t i = 0; i < count; ++i) requests.push_back(greedy(i, 24 + static_cast<std::int64_t>(i) % 9));
  std::vector<TokenIds> all;
  for (const auto& result : engine.generate(requests)) {
    EXPECT_TRUE(result) << result.error().message;
    all.push_back(result ? result->outputs.front().token_ids : TokenIds{});
  }
  return all;
}

/// Log-probabilities of the tokens of some text that the unquantised model has written.
std::vector<double> logprobs_of(Engine& engine, const std::vector<std::string>& texts) {
  std::vector<double> all;
  for (const std::string& text : texts) {
    GenerateRequest request;
    request.prompt = text;
    request.sampling.max_tokens = 1;
    request.sampling.prompt_logprobs = 0;
    const auto result = engine.generate(request);
    EXPECT_TRUE(result) << result.error().message;
    if (!result) return {};
    for (const auto& entry : *result->prompt_logprobs) {
      all.push_back(entry.logprob);
    }
  }
  return all;
}

std::vector<std::string> written_texts(Engine& engine) {
  std::vector<std::string> texts;
  for (std::size_t i = 0; i < 16; ++i) {
    GenerateRequest request = greedy(i, 96);
    request.sampling.temperature = 1.0;
    request.sampling.seed = i + 1;
    const auto result = engine.generate(request);
    EXPECT_TRUE(result) << result.error().message;
    if (result) texts.push_back(*request.prompt + result->outputs.front().text);
  }
  return texts;
}

class QuantizedEngineTest : public testing::TestWithParam<std::string> {};

TEST_P(QuantizedEngineTest, ComputesWithCopiesThatAnEngineBeforeItHasMade) {
  constexpr std::int64_t kBytes = 1 << 30;
  kernels::CpuDeviceOptions options;
  options.num_threads = 2;
  const auto device = kernels::create_cpu_device(options);
  ASSERT_TRUE(device) << device.error().message;
  const auto store = std::make_shared<weights::CopyStore>(kBytes, kBytes);
  std::vector<TokenIds> before;
  for (const bool are_made : {false, true}) {
    const auto use = store->use(0, 0, "1", *device);
    EXPECT_EQ(use->filled_bytes() > 0, are_made);
    const auto engine = demo_engine([](EngineConfig& config) { config.quantize = GetParam(); },
                                    {.device = *device, .kept_weights = use});
    use->mark_complete();
    EXPECT_GT(use->filled_bytes(), 0);
    const auto tokens = tokens_of(*engine, kPrompts.size());
    if (are_made) {
      EXPECT_EQ(tokens, before);
    }
    before = tokens;
  }
}

TEST_P(QuantizedEngineTest, GivesTheSameTokensInAnyBatch) {
  const auto quantized = [](std::int32_t max_num_seqs, std::int32_t max_tokens) {
    return demo_engine([&](EngineConfig& config) {
      config.quantize = GetParam();
      config.max_num_seqs = max_num_seqs;
      config.max_num_batched_tokens = max_tokens;
    });
  };
  constexpr std::size_t kRequests = 20;
  const auto alone = tokens_of(*quantized(1, 64), kRequests);
  EXPECT_EQ(tokens_of(*quantized(3, 16), kRequests), alone);
  EXPECT_EQ(tokens_of(*quantized(64, 256), kRequests), alone);
}

TEST_P(QuantizedEngineTest, GivesTheSameTokensWithWeightsUploadedToADevice) {
  if (GetParam() == std::string("int4")) GTEST_SKIP() << "on a GPU int4 is another format";
  const auto configure = [&](EngineConfig& config) { config.quantize = GetParam(); };
  const auto on_device = [&](EngineConfig& config) {
    configure(config);
    config.device = "cuda";
    config.enforce_eager = true;
  };
  constexpr std::size_t kRequests = 20;
  const auto engine = demo_engine(on_device, {.device = std::make_shared<test::SplitMemoryDevice>()});
  EXPECT_EQ(tokens_of(*engine, kRequests), tokens_of(*demo_engine(configure), kRequests));
}

TEST_P(QuantizedEngineTest, StaysNearTheUnquantisedModel) {
  const auto plain = demo_engine([](EngineConfig&) {});
  const auto texts = written_texts(*plain);
  const auto expected = logprobs_of(*plain, texts);
  const auto quantized = demo_engine([](EngineConfig& config) { config.quantize = GetParam(); });
  const auto actual = logprobs_of(*quantized, texts);
  ASSERT_EQ(actual.size(), expected.size());
  ASSERT_GT(actual.size(), 1000U);
  double change = 0;
  double squared = 0;
  for (std::size_t i = 0; i < actual.size(); ++i) {
    change += actual[i] - expected[i];
    squared += (actual[i] - expected[i]) * (actual[i] - expected[i]);
  }
  const auto count = static_cast<double>(actual.size());
  const bool is_int8 = GetParam() == "int8";
  RecordProperty("mean_change", std::to_string(change / count));
  RecordProperty("rms_change", std::to_string(std::sqrt(squared / count)));
  EXPECT_LT(std::abs(change / count), is_int8 ? 0.005 : 0.1);
  EXPECT_LT(std::sqrt(squared / count), is_int8 ? 0.05 : 0.5);
}

INSTANTIATE_TEST_SUITE_P(Formats, QuantizedEngineTest, testing::Values("int8", "int4"),
                         [](const testing::TestParamInfo<std::string>& case_info) { return case_info.param; });

TEST(Engine, GivesTheSameTokensWithWeightsConvertedToAWiderType) {
  const auto as_stored = tokens_of(*demo_engine([](EngineConfig&) {}), 8);
  const auto widened = tokens_of(*demo_engine([](EngineConfig& config) {
    config.dtype = "float32";
    config.kv_cache_dtype = "bfloat16";
  }),
                                 8);
  EXPECT_EQ(widened, as_stored);
}

}  // namespace
}  // namespace pagoda

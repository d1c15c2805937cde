#include <filesystem>
#include <memory>
#include <string>
#include <utility>

#include <gtest/gtest.h>

#include "pagoda/engine.hpp"
#include "pagoda/engine_plan.hpp"
#include "tests/pagoda/test_models.hpp"
#include "tests/support/temporary_folder.hpp"

namespace pagoda {
namespace {

class DummyModelTest : public testing::Test {
 protected:
  DummyModelTest() {
    std::filesystem::copy(test::demo_model() + "/config.json", folder_.path() / "config.json");
    config_.model = folder_.path().string();
    config_.load_format = "dummy";
    config_.threads = 2;
    config_.max_num_seqs = 8;
    config_.kv_cache_memory = 0.05;
  }

  RequestResult write() const {
    auto engine = Engine::create(config_);
    EXPECT_TRUE(engine) << engine.error().message;
    if (!engine) return {};
    GenerateRequest request;
    request.prompt = "Once upon a time";
    request.sampling.max_tokens = 20;
    request.sampling.temperature = 0;
    request.sampling.ignore_eos = true;
    auto result = (*engine)->generate(request);
    EXPECT_TRUE(result) << result.error().message;
    return result ? std::move(*result) : RequestResult{};
  }

  test::TemporaryFolder folder_;
  EngineConfig config_;
};

TEST_F(DummyModelTest, WritesFromAConfigAlone) {
  const auto result = write();
  ASSERT_EQ(result.outputs.size(), 1U);
  EXPECT_EQ(result.usage.prompt_tokens, 16);  // bytes
  EXPECT_EQ(result.outputs.front().token_ids.size(), 20U);
  EXPECT_EQ(write().outputs.front().token_ids, result.outputs.front().token_ids);
}

TEST_F(DummyModelTest, IsQuantisedAndConvertedAsAnyOther) {
  for (const char* quantize : {"int8", "int4"}) {
    config_.quantize = quantize;
    EXPECT_EQ(write().outputs.front().token_ids.size(), 20U);
  }
  config_.quantize = "none";
  config_.dtype = "float32";
  EXPECT_EQ(write().outputs.front().token_ids.size(), 20U);
}

TEST_F(DummyModelTest, HasTheTokenizerOfItsFolder) {
  std::filesystem::copy(test::demo_model() + "/tokenizer.json", folder_.path() / "tokenizer.json");
  EXPECT_LT(write().usage.prompt_tokens, 8);
}

TEST_F(DummyModelTest, ItsWeightsCountAsMemory) {
  const auto plan = plan_engine(config_, **create_device(config_));
  ASSERT_TRUE(plan) << plan.error().message;
  EXPECT_FALSE(plan->weights.copy_linear);
  EXPECT_EQ(plan->copied_weight_bytes, plan->memory.weight_bytes);
  EXPECT_GT(plan->copied_weight_bytes, 0);
}

}  // namespace
}  // namespace pagoda

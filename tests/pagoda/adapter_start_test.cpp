// Adapters that an engine knows when it starts.

#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "pagoda/engine.hpp"
#include "tests/io/adapters/golden_adapters.hpp"
#include "tests/pagoda/golden_model.hpp"

namespace pagoda {
namespace {

using testing::HasSubstr;

class AdapterStart : public testing::Test {
 protected:
  AdapterStart() {
    config_.model = model_.path();
    config_.threads = 2;
    config_.num_device_blocks = 64;
    config_.enable_lora = true;
    config_.max_lora_rank = 256;
  }

  test::GoldenAdapter golden_{"gemma3-rank-256-layers"};
  test::GoldenAdapter prompt_{"gemma3-prefix"};
  test::ServableModel model_{golden_.json().at("base").get<std::string>()};
  EngineConfig config_;
};

TEST_F(AdapterStart, OneThatCannotBeReadFailsTheStart) {
  config_.lora_modules = "good=" + golden_.path() + ",sql=/nowhere/sql";
  const auto engine = Engine::create(config_);
  ASSERT_FALSE(engine);
  EXPECT_THAT(engine.error().message, HasSubstr("lora_modules: adapter \"sql\" cannot be loaded"));
  EXPECT_THAT(engine.error().message, HasSubstr("/nowhere/sql"));
  EXPECT_EQ(engine.error().param, "lora_modules");
}

TEST_F(AdapterStart, APromptAdapterThatIsTooLongFailsTheStart) {
  config_.enable_prompt_adapter = true;
  config_.max_prompt_adapter_token = 8;
  config_.prompt_adapters = "tone=" + prompt_.path();
  const auto engine = Engine::create(config_);
  ASSERT_FALSE(engine);
  EXPECT_THAT(engine.error().message, HasSubstr("prompt_adapters: adapter \"tone\" cannot be loaded"));
  EXPECT_THAT(engine.error().message, HasSubstr("9 virtual tokens, more than max_prompt_adapter_token (8)"));
  EXPECT_EQ(engine.error().param, "prompt_adapters");
}

TEST_F(AdapterStart, EachKindOfAdapterHasToBeEnabled) {
  config_.lora_modules = "tone=" + prompt_.path();
  const auto without_prompts = Engine::create(config_);
  ASSERT_FALSE(without_prompts);
  EXPECT_THAT(without_prompts.error().message, HasSubstr("without enable_prompt_adapter"));
  config_.enable_lora = false;
  config_.lora_modules.clear();
  config_.enable_prompt_adapter = true;
  config_.prompt_adapters = "sql=" + golden_.path();
  const auto without_lora = Engine::create(config_);
  ASSERT_FALSE(without_lora);
  EXPECT_THAT(without_lora.error().message, HasSubstr("without enable_lora"));
}

TEST_F(AdapterStart, AWrongListFailsTheStart) {
  config_.lora_modules = "sql";
  const auto engine = Engine::create(config_);
  ASSERT_FALSE(engine);
  EXPECT_EQ(engine.error().code, ErrorCode::bad_config);
  EXPECT_EQ(engine.error().param, "lora_modules");
}

TEST_F(AdapterStart, RequestsNameThoseThatAreKnown) {
  config_.lora_modules = "sql=" + golden_.path();
  const auto engine = Engine::create(config_);
  ASSERT_TRUE(engine) << engine.error().message;
  GenerateRequest request;
  request.prompt_token_ids = {1, 2, 3};
  request.sampling.max_tokens = 4;
  request.adapter = "sql";
  GenerateRequest unknown = request;
  unknown.adapter = "chat";
  const auto results = (*engine)->generate(std::vector{request, unknown});
  EXPECT_TRUE(results.at(0)) << results.at(0).error().message;
  ASSERT_FALSE(results.at(1));
  EXPECT_EQ(results.at(1).error().code, ErrorCode::unknown_adapter);
  EXPECT_THAT(results.at(1).error().message, HasSubstr("the adapters are: sql"));
}

TEST_F(AdapterStart, AnEngineWithoutAdaptersRefusesThem) {
  config_.enable_lora = false;
  const auto engine = Engine::create(config_);
  ASSERT_TRUE(engine) << engine.error().message;
  GenerateRequest request;
  request.prompt_token_ids = {1, 2, 3};
  request.adapter = "sql";
  const auto results = (*engine)->generate(std::vector{request});
  ASSERT_FALSE(results.at(0));
  EXPECT_EQ(results.at(0).error().code, ErrorCode::unknown_adapter);
  EXPECT_THAT(results.at(0).error().message, HasSubstr("enable_lora"));
}

}  // namespace
}  // namespace pagoda

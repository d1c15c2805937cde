// What clients see of prompt adapters.

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "pagoda/engine.hpp"
#include "tests/io/adapters/golden_adapters.hpp"
#include "tests/pagoda/golden_model.hpp"
#include "tests/support/instruction_sets.hpp"

namespace pagoda {
namespace {

using testing::HasSubstr;

constexpr std::int32_t kBlockTokens = 4;

class PromptAdapters : public testing::Test {
 protected:
  PromptAdapters() {
    EngineConfig config;
    config.model = model_.path();
    config.threads = 2;
    config.block_size = kBlockTokens;
    config.num_device_blocks = 200;
    config.kv_cache_dtype = "float32";
    config.cpu_isa = test::exact_isa();
    config.enable_prompt_adapter = true;
    config.max_prompt_adapters = 2;
    for (const char* name : kNames) {
      config.prompt_adapters += (config.prompt_adapters.empty() ? "" : ",") + (name + ("=" + path_of(name)));
    }
    auto engine = Engine::create(config);
    EXPECT_TRUE(engine) << engine.error().message;
    engine_ = std::move(*engine);
  }

  static std::string path_of(const std::string& name) { return test::GoldenAdapter(name).path(); }

  /// A greedy request with the first prompt of a golden adapter.
  static GenerateRequest request_of(const std::string& name, std::int64_t max_tokens) {
    GenerateRequest request;
    request.prompt_token_ids = case_of(name).at("prompt_token_ids").get<std::vector<std::int64_t>>();
    request.sampling.max_tokens = max_tokens;
    request.sampling.temperature = 0;
    request.sampling.ignore_eos = true;
    request.adapter = name;
    return request;
  }
  static nlohmann::json case_of(const std::string& name) { return test::GoldenAdapter(name).json().at("cases").at(1); }

  static constexpr const char* kNames[] = {"llama-prompt-tuning", "llama-prefix"};  // of 5 and 7 tokens
  test::ServableModel model_{"llama-gqa-bf16"};
  std::unique_ptr<Engine> engine_;
};

TEST_F(PromptAdapters, VirtualTokensAreNotInUsage) {
  for (const std::string name : kNames) {
    SCOPED_TRACE(name);
    const std::int64_t num_virtual = test::GoldenAdapter(name).json().at("virtual_tokens").at("shape").at(0);
    const GenerateRequest request = request_of(name, 2);
    const std::int64_t num_own = std::ssize(*request.prompt_token_ids);
    const auto first = engine_->generate(request).value();
    EXPECT_EQ(first.usage.prompt_tokens, num_own);
    EXPECT_EQ(first.usage.cached_tokens, 0);
    const auto second = engine_->generate(request).value();
    // All full blocks but the last token are found.
    const std::int64_t num_cached = (num_virtual + num_own - 1) / kBlockTokens * kBlockTokens;
    EXPECT_EQ(second.usage.cached_tokens, num_cached - num_virtual);
    EXPECT_EQ(second.outputs.at(0).token_ids, first.outputs.at(0).token_ids);
  }
}

TEST_F(PromptAdapters, LogprobsOfThePromptBeginBehindVirtualTokens) {
  for (const std::string name : kNames) {
    SCOPED_TRACE(name);
    // The prompt is followed by the tokens that peft has chosen, whose log-probabilities are known.
    GenerateRequest request = request_of(name, 1);
    const auto num_own = request.prompt_token_ids->size();
    const auto greedy = case_of(name).at("adapter").at("greedy");
    for (const std::int64_t token : greedy.at("token_ids").get<std::vector<std::int64_t>>()) {
      request.prompt_token_ids->push_back(token);
    }
    request.sampling.prompt_logprobs = 0;
    const auto result = engine_->generate(request).value();
    const auto logprobs = greedy.at("logprobs").get<std::vector<double>>();
    ASSERT_EQ(result.prompt_logprobs->size(), request.prompt_token_ids->size() - 1);
    for (std::size_t i = 0; i < logprobs.size(); ++i) {
      const LogprobEntry entry = (*result.prompt_logprobs)[num_own - 1 + i];
      EXPECT_EQ(entry.token_id, (*request.prompt_token_ids)[num_own + i]);
      EXPECT_NEAR(entry.logprob, logprobs[i], 1e-3) << "token " << i;
    }
  }
}

TEST_F(PromptAdapters, PenaltiesDoNotSeeVirtualTokens) {
  constexpr std::int64_t kIdOfVirtualTokens = 0;
  for (const std::string name : kNames) {
    SCOPED_TRACE(name);
    GenerateRequest request = request_of(name, 1);
    request.sampling.repetition_penalty = 2.0;
    std::erase(*request.prompt_token_ids, kIdOfVirtualTokens);
    std::int64_t other = 1;
    while (std::ranges::count(*request.prompt_token_ids, other) > 0) ++other;
    // Half of the first is less than the second.
    request.sampling.logit_bias = {{kIdOfVirtualTokens, 100.0}, {other, 80.0}};
    EXPECT_EQ(engine_->generate(request).value().outputs.at(0).token_ids, (TokenIds{kIdOfVirtualTokens}));
    request.prompt_token_ids->insert(request.prompt_token_ids->begin(), kIdOfVirtualTokens);
    EXPECT_EQ(engine_->generate(request).value().outputs.at(0).token_ids, (TokenIds{static_cast<TokenId>(other)}));
  }
}

TEST_F(PromptAdapters, TheyAreAddedAndRemovedLikeOthers) {
  const std::string again = "again";
  ASSERT_TRUE(engine_->add_adapter(again, path_of("llama-prefix")));
  GenerateRequest request = request_of("llama-prefix", 3);
  const auto expected = engine_->generate(request).value();
  request.adapter = again;
  EXPECT_EQ(engine_->generate(request).value().outputs.at(0).token_ids, expected.outputs.at(0).token_ids);
  ASSERT_TRUE(engine_->remove_adapter(again));
  EXPECT_EQ(engine_->generate(request).error().code, ErrorCode::unknown_adapter);
}

TEST_F(PromptAdapters, TheyCountForTheContext) {
  GenerateRequest request = request_of("llama-prefix", 1);
  const std::int64_t longest = engine_->model_info().max_model_len - 1;
  request.prompt_token_ids->assign(static_cast<std::size_t>(longest), 5);
  const auto refused = engine_->generate(request);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::context_too_long);
  EXPECT_THAT(refused.error().message, HasSubstr("7 are virtual tokens of the adapter \"llama-prefix\""));
  request.truncate_prompt_tokens = -1;
  EXPECT_EQ(engine_->generate(request).value().usage.prompt_tokens, longest - 7);
}

}  // namespace
}  // namespace pagoda

// thinking_token_budget through the whole engine, with a model whose thinking stands between "?" and "!".

#include <algorithm>
#include <functional>

#include <gtest/gtest.h>

#include "engine/grammar/compiled_grammar.hpp"
#include "pagoda/engine.hpp"
#include "tests/pagoda/test_models.hpp"
#include "tests/support/temporary_folder.hpp"

namespace pagoda {
namespace {

std::unique_ptr<Engine> engine_that_thinks(const std::function<void(EngineConfig&)>& change = {}) {
  EngineConfig config;
  config.model = test::demo_model();
  config.threads = 2;
  config.max_num_seqs = 16;
  config.max_num_batched_tokens = 64;
  config.kv_cache_dtype = "float32";
  config.cpu_isa = "scalar";
  config.chat_template = PAGODA_SOURCE_DIR "/examples/templates/chatml-tools.jinja";
  const test::TemporaryFolder folder;
  folder.write("dialect.json", R"({"thinking": {"begin": "?", "end": "!\n"}})");
  config.answer_dialect = (folder.path() / "dialect.json").string();
  if (change) change(config);
  auto engine = Engine::create(config);
  EXPECT_TRUE(engine) << engine.error().message;
  return engine ? std::move(*engine) : nullptr;
}

GenerateRequest budget_request(const TokenIds& prompt, std::int64_t max_tokens, std::optional<std::int64_t> budget) {
  GenerateRequest request;
  request.prompt_token_ids.emplace(prompt.begin(), prompt.end());
  request.sampling.temperature = 0;
  request.sampling.max_tokens = max_tokens;
  request.sampling.thinking_token_budget = budget;
  return request;
}

TokenIds tokens_of(Engine& engine, const GenerateRequest& request) {
  const auto result = engine.generate(request);
  EXPECT_TRUE(result) << result.error().message;
  return result ? result->outputs.front().token_ids : TokenIds();
}

constexpr std::int64_t kLength = 24;

/// What the model says when it is stopped after `budget` tokens and goes on behind the end of its thinking.
TokenIds right_tokens(Engine& engine, const TokenIds& prompt, std::int64_t budget, TokenId end) {
  TokenIds right = tokens_of(engine, budget_request(prompt, kLength, std::nullopt));
  const auto thought = right.begin() + std::min(budget, std::ssize(right));
  if (std::find(right.begin(), thought, end) != thought || std::ssize(right) < budget) return right;
  right.erase(thought, right.end());
  right.push_back(end);
  TokenIds so_far = prompt;
  so_far.insert(so_far.end(), right.begin(), right.end());
  const TokenIds rest = tokens_of(engine, budget_request(so_far, kLength - std::ssize(right), std::nullopt));
  right.insert(right.end(), rest.begin(), rest.end());
  return right;
}

TEST(ThinkingBudgetInTheEngine, TheModelGoesOnAsIfItHadEndedItsThinkingThere) {
  const auto engine = engine_that_thinks();
  ASSERT_TRUE(engine);
  const TokenId end = engine->tokenize("!", false).value().at(0);
  std::vector<GenerateRequest> requests;
  std::vector<TokenIds> right;
  for (const char* text : {"Tom asked: who are you?", "She said: where is my cat?", "One day a bird flew away"}) {
    const TokenIds prompt = engine->tokenize(text).value();
    const bool thinks = std::string_view(text).ends_with('?');
    for (const std::int64_t budget : {0, 1, 4, 9, 400}) {
      right.push_back(thinks ? right_tokens(*engine, prompt, budget, end)
                             : tokens_of(*engine, budget_request(prompt, kLength, std::nullopt)));
      requests.push_back(budget_request(prompt, kLength, budget));
    }
  }
  EXPECT_EQ(right[1].at(1), end);
  const auto check = [&](const char* what, const std::function<void(EngineConfig&)>& change) {
    SCOPED_TRACE(what);
    const auto other = engine_that_thinks(change);
    ASSERT_TRUE(other);
    auto mixed = requests;
    // One that waits for masks:
    mixed.push_back(budget_request(engine->tokenize("Once upon a time").value(), kLength, std::nullopt));
    mixed.back().sampling.structured_outputs = {GrammarKind::regex, "[a-z]{40,60}", {}};
    const auto results = other->generate(mixed);
    for (std::size_t i = 0; i < right.size(); ++i) {
      ASSERT_TRUE(results[i]) << results[i].error().message;
      EXPECT_EQ(results[i]->outputs.front().token_ids, right[i]) << "request " << i;
    }
  };
  check("two steps in flight", {});
  check("one step at a time", [](EngineConfig& c) { c.pipeline_depth = 1; });
  check("little memory", [](EngineConfig& c) {
    c.block_size = 4;
    c.num_device_blocks = 40;
  });
}

TEST(ThinkingBudgetInTheEngine, EachOfSeveralSequencesHasItsOwn) {
  const auto engine = engine_that_thinks();
  ASSERT_TRUE(engine);
  const TokenId end = engine->tokenize("!", false).value().at(0);
  auto request = budget_request(engine->tokenize("Tom asked: who are you?").value(), kLength, 5);
  request.sampling.temperature = 1;
  request.sampling.seed = 3;
  request.sampling.n = 6;
  const auto result = engine->generate(request);
  ASSERT_TRUE(result) << result.error().message;
  for (const SequenceResult& output : result->outputs) {
    const auto head = std::span(output.token_ids).first(std::min<std::size_t>(6, output.token_ids.size()));
    const bool ends = std::ranges::find(head, end) != head.end() || output.token_ids.size() < 6;
    EXPECT_TRUE(ends) << output.text;
  }
}

TEST(ThinkingBudgetInTheEngine, WhoseModelDoesNotThinkIsRefusedOrDropped) {
  const auto engine = engine_that_thinks([](EngineConfig& c) { c.answer_dialect.clear(); });
  ASSERT_TRUE(engine);
  const TokenIds prompt = engine->tokenize("Tom asked: who are you?").value();
  auto request = budget_request(prompt, kLength, 3);
  const auto refused = engine->generate(request);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::unsupported);
  EXPECT_EQ(refused.error().param, "thinking_token_budget");
  request.may_drop_thinking_budget = true;
  EXPECT_EQ(tokens_of(*engine, request), tokens_of(*engine, budget_request(prompt, kLength, std::nullopt)));
  request.sampling.thinking_token_budget = -1;
  request.may_drop_thinking_budget = false;
  EXPECT_EQ(engine->generate(request).error().code, ErrorCode::invalid_request);
}

}  // namespace
}  // namespace pagoda

// Texts that are held to a schema, a regex, choices or a grammar, through the whole engine.

#include <atomic>
#include <cmath>
#include <functional>
#include <map>
#include <memory>
#include <regex>
#include <thread>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "engine/grammar/compiled_grammar.hpp"
#include "pagoda/engine.hpp"
#include "tests/pagoda/test_models.hpp"
#include "tests/support/instruction_sets.hpp"
#include "tests/support/split_memory_device.hpp"

namespace pagoda {
namespace {

using nlohmann::json;

constexpr const char* kPet =
    R"({"type":"object","properties":{"name":{"type":"string","pattern":"^[A-Z][a-z]{1,8}$"},)"
    R"("kind":{"enum":["cat","dog","owl"]},"age":{"type":"integer","minimum":0,"maximum":30},)"
    R"("tame":{"type":"boolean"}},"required":["name","kind","age"],"additionalProperties":false})";

class StructuredOutputs : public testing::Test {
 protected:
  static std::unique_ptr<Engine> engine(const std::function<void(EngineConfig&)>& change = {},
                                        const EngineSetup& setup = {}) {
    EngineConfig config;
    config.model = test::demo_model();
    config.threads = 2;
    config.max_num_seqs = 16;
    config.max_num_batched_tokens = 64;
    config.kv_cache_dtype = "float32";
    config.cpu_isa = "scalar";
    if (change) change(config);
    auto engine = Engine::create(config, setup);
    EXPECT_TRUE(engine) << engine.error().message;
    return engine ? std::move(*engine) : nullptr;
  }

  static GenerateRequest request(GrammarKind kind, const std::string& text, std::vector<std::string> choices = {}) {
    GenerateRequest request;
    request.prompt = "Once upon a time there was";
    request.sampling.max_tokens = 200;
    request.sampling.temperature = 1.5;  // seldom what the model would write by itself
    request.sampling.seed = 5;
    request.sampling.structured_outputs = {kind, text, std::move(choices)};
    return request;
  }
};

void expect_pet(const std::string& text) {
  const json pet = json::parse(text, nullptr, false);
  ASSERT_TRUE(pet.is_object()) << text;
  EXPECT_TRUE(std::regex_match(pet.at("name").get<std::string>(), std::regex("[A-Z][a-z]{1,8}"))) << text;
  EXPECT_TRUE(pet.at("kind") == "cat" || pet.at("kind") == "dog" || pet.at("kind") == "owl") << text;
  EXPECT_TRUE(pet.at("age") >= 0 && pet.at("age") <= 30) << text;
  EXPECT_EQ(pet.size(), pet.contains("tame") ? 4U : 3U) << text;
}

TEST_F(StructuredOutputs, EveryKindIsKept) {
  const auto engine = StructuredOutputs::engine();
  ASSERT_TRUE(engine);
  const auto texts = [&](GenerateRequest request) {
    request.sampling.n = 8;
    const auto result = engine->generate(std::move(request));
    EXPECT_TRUE(result) << result.error().message;
    std::vector<std::string> all;
    if (!result) return all;
    for (const auto& output : result->outputs) {
      EXPECT_EQ(output.finish_reason, FinishReason::stop) << output.text;
      all.push_back(output.text);
    }
    return all;
  };
  for (const auto& text : texts(request(GrammarKind::json_schema, kPet))) expect_pet(text);
  for (const auto& text : texts(request(GrammarKind::regex, "[A-C]{3}-\\d{2}"))) {
    EXPECT_TRUE(std::regex_match(text, std::regex("[A-C]{3}-\\d{2}"))) << text;
  }
  for (const auto& text : texts(request(GrammarKind::choice, {}, {"yes", "no", "caf\xC3\xA9"}))) {
    EXPECT_TRUE(text == "yes" || text == "no" || text == "caf\xC3\xA9") << text;
  }
  for (const auto& text : texts(request(GrammarKind::grammar, "root ::= (\"(\" [0-9] \")\"){2,3}"))) {
    EXPECT_TRUE(std::regex_match(text, std::regex("(\\([0-9]\\)){2,3}"))) << text;
  }
}

TEST_F(StructuredOutputs, WhatIsCutIsTheBeginningOfAText) {
  const auto engine = StructuredOutputs::engine();
  ASSERT_TRUE(engine);
  auto long_one = request(GrammarKind::regex, "[a-z]{300}");
  long_one.sampling.max_tokens = 30;
  const auto result = engine->generate(std::move(long_one));
  ASSERT_TRUE(result);
  EXPECT_EQ(result->outputs[0].finish_reason, FinishReason::length);
  EXPECT_EQ(std::ssize(result->outputs[0].token_ids), 30);
  EXPECT_TRUE(std::regex_match(result->outputs[0].text, std::regex("[a-z]+"))) << result->outputs[0].text;

  auto stopped = request(GrammarKind::regex, "a{5}b{5}c*");
  stopped.sampling.stop = {"bb"};
  const auto at_stop = engine->generate(std::move(stopped));
  ASSERT_TRUE(at_stop);
  EXPECT_EQ(at_stop->outputs[0].text, "aaaaa");
  EXPECT_EQ(at_stop->outputs[0].finish_reason, FinishReason::stop);
}

TEST_F(StructuredOutputs, WhatCannotBeIsRefusedAndSaysWhy) {
  const auto engine = StructuredOutputs::engine();
  ASSERT_TRUE(engine);
  const auto refusal = [&](const GenerateRequest& refused) {
    const auto result = engine->generate(refused);
    EXPECT_FALSE(result);
    return result ? Error{} : result.error();
  };
  const Error keyword = refusal(
      request(GrammarKind::json_schema, R"({"type":"object","properties":{"a":{"type":"array","uniqueItems":true}}})"));
  EXPECT_EQ(keyword.code, ErrorCode::invalid_request);
  EXPECT_EQ(keyword.param, "structured_outputs");
  EXPECT_NE(keyword.message.find("uniqueItems"), std::string::npos) << keyword.message;
  EXPECT_NE(keyword.message.find("/properties/a"), std::string::npos) << keyword.message;
  EXPECT_EQ(refusal(request(GrammarKind::json_schema, R"({"$ref":"#"})")).param, "structured_outputs");
  EXPECT_EQ(refusal(request(GrammarKind::regex, "(")).param, "structured_outputs");
  auto ignores_eos = request(GrammarKind::regex, "a");
  ignores_eos.sampling.ignore_eos = true;
  EXPECT_EQ(refusal(ignores_eos).param, "ignore_eos");
  EXPECT_EQ(engine->stats().requests_running, 0);
}

TEST_F(StructuredOutputs, NobodyWaitsForASlowGrammar) {
  const auto engine = StructuredOutputs::engine();
  ASSERT_TRUE(engine);
  // Many states, each to be held against the vocabulary, one grammar after the other.
  std::atomic<bool> has_ended = false;
  const std::jthread slow([&] {
    for (int i = 0; i < 20; ++i) {
      auto constraint = request(GrammarKind::regex, std::to_string(i) + "([a-z]{1,400} [0-9]{1,400}){1,2}");
      constraint.sampling.max_tokens = 1;
      EXPECT_TRUE(engine->generate(std::move(constraint)));
    }
    has_ended = true;
  });
  while (engine->stats().requests_waiting == 0 && !has_ended) std::this_thread::yield();
  GenerateRequest plain;
  plain.prompt = "Once";
  plain.sampling.max_tokens = 3;
  EXPECT_TRUE(engine->generate(std::move(plain)));
  EXPECT_FALSE(has_ended) << "it is to wait for one of them at most";
}

struct Outcome {
  std::vector<TokenIds> tokens;
  std::vector<std::string> texts;
  bool operator==(const Outcome&) const = default;
};

/// Constrained and free requests together, n > 1, beams and best_of among them.
std::vector<GenerateRequest> mixed_requests(const std::function<GenerateRequest(const char*)>& constrained) {
  std::vector<GenerateRequest> requests;
  for (std::uint64_t i = 0; i < 12; ++i) {
    GenerateRequest request = constrained(i % 3 == 2 ? "[a-z]{40,60}" : nullptr);
    if (i % 4 == 3) {
      request.sampling.structured_outputs.reset();
      request.sampling.max_tokens = 40;
    }
    request.prompt = "Story number " + std::to_string(i) + ": once upon a time";
    request.sampling.seed = i;
    request.sampling.logprobs = 2;
    if (i % 5 == 0) request.sampling.n = 3;
    if (i % 5 == 1) request.sampling.best_of = 2;
    if (i % 6 == 4) {
      request.sampling.use_beam_search = true;
      request.sampling.temperature = 0;
      request.sampling.best_of = 3;
      request.sampling.n = 2;
      request.sampling.seed.reset();
    }
    requests.push_back(std::move(request));
  }
  return requests;
}

TEST_F(StructuredOutputs, AreTheSameHoweverTheyAreScheduled) {
  const auto requests = mixed_requests([](const char* regex) {
    return regex != nullptr ? request(GrammarKind::regex, regex) : request(GrammarKind::json_schema, kPet);
  });
  std::vector<Outcome> right;
  const auto check = [&](const char* what, bool must_preempt, const std::function<void(EngineConfig&)>& change,
                         const EngineSetup& setup = {}) {
    SCOPED_TRACE(what);
    const auto engine = StructuredOutputs::engine(change, setup);
    ASSERT_TRUE(engine);
    auto those = requests;
    // Who asks for log-probabilities has each token sampled; others not those that are certain.
    for (std::size_t i = 1; i < those.size() && !right.empty(); i += 2) those[i].sampling.logprobs.reset();
    const auto results = engine->generate(those);
    std::vector<Outcome> outcomes;
    for (std::size_t i = 0; i < results.size(); ++i) {
      ASSERT_TRUE(results[i]) << results[i].error().message;
      Outcome& outcome = outcomes.emplace_back();
      for (const auto& output : results[i]->outputs) {
        outcome.tokens.push_back(output.token_ids);
        outcome.texts.push_back(output.text);
        const auto& constraint = requests[i].sampling.structured_outputs;
        if (constraint && constraint->kind == GrammarKind::json_schema) expect_pet(output.text);
        if (constraint && constraint->kind == GrammarKind::regex) {
          EXPECT_TRUE(std::regex_match(output.text, std::regex("[a-z]{40,60}"))) << output.text;
        }
      }
    }
    if (right.empty()) right = outcomes;
    EXPECT_TRUE(outcomes == right);
    const EngineStats stats = engine->stats();
    EXPECT_EQ(stats.preemptions_recompute_total + stats.preemptions_swap_total > 0, must_preempt);
  };
  check("each token sampled", false, {});
  check("plain", false, {});
  check("one step at a time", false, [](EngineConfig& c) { c.pipeline_depth = 1; });
  check("small steps, no prefix cache", false, [](EngineConfig& c) {
    c.max_num_seqs = c.max_num_batched_tokens = 8;
    c.enable_prefix_caching = false;
  });
  check("preempted by recompute", true, [](EngineConfig& c) {
    c.block_size = 4;
    c.num_device_blocks = 50;
    c.preemption_mode = PreemptionPolicy::recompute;
  });
  check("preempted by swap", true, [](EngineConfig& c) {
    c.block_size = 4;
    c.num_device_blocks = 50;
    c.num_host_blocks = 500;
    c.preemption_mode = PreemptionPolicy::swap;
  });
  check("on a device with memory of its own", false, [](EngineConfig& c) { c.device = "cuda"; },
        {.device =
             std::make_shared<test::SplitMemoryDevice>(test::SplitMemoryDevice::Options{.isa = test::exact_isa()})});
}

TEST_F(StructuredOutputs, OfGrammarsThatTakeLongHaveTheTokensThatTheyHaveAlone) {
  const auto engine = StructuredOutputs::engine([](EngineConfig& c) {
    c.max_num_seqs = 32;
    c.enable_prefix_caching = false;
  });
  ASSERT_TRUE(engine);
  std::vector<GenerateRequest> requests;
  for (int k = 0; k < 24; ++k) {
    requests.push_back(request(GrammarKind::regex, "(.{0," + std::to_string(12 + k) + "}[aeiou]){2," +
                                                       std::to_string(4 + k % 7) + "}[x-z]{0," + std::to_string(1 + k) +
                                                       "}"));
    requests.back().sampling.max_tokens = 20;
    requests.back().sampling.seed = static_cast<std::uint64_t>(k);
    if (k % 4 == 0) requests.back().sampling.structured_outputs.reset();
  }
  std::vector<TokenIds> alone;
  for (const GenerateRequest& one : requests) {
    const auto result = engine->generate(one);
    ASSERT_TRUE(result) << result.error().message;
    alone.push_back(result->outputs.at(0).token_ids);
  }
  const auto together = engine->generate(requests);
  for (std::size_t i = 0; i < together.size(); ++i) {
    ASSERT_TRUE(together[i]) << together[i].error().message;
    EXPECT_EQ(together[i]->outputs.at(0).token_ids, alone[i]) << i;
  }
}

TEST_F(StructuredOutputs, TakeFewerStepsWhereATextIsCertain) {
  // The model's vocabulary has no token of two of these characters; of the letters it has many.
  auto constraint = request(GrammarKind::regex, R"(\{[a-z]{3}#@%#@%#@%#@%[ab]#@%#@%#@%#@%once upon a time\})");
  const auto run = [&](std::int32_t pipeline_depth, std::optional<std::int64_t> logprobs, bool is_streamed) {
    const auto engine = StructuredOutputs::engine([&](EngineConfig& c) { c.pipeline_depth = pipeline_depth; });
    constraint.stream = is_streamed;
    constraint.sampling.logprobs = logprobs;
    const auto result = engine->generate(constraint);
    EXPECT_TRUE(result) << result.error().message;
    return std::pair(result->outputs.at(0), engine->stats().steps_total);
  };
  // With log-probabilities each token is sampled, and with one step at a time in a step of its own.
  const auto [right, num_steps] = run(1, 2, true);
  EXPECT_GE(num_steps, std::ssize(right.token_ids));
  for (const bool is_streamed : {false, true}) {
    for (const bool has_logprobs : {false, true}) {
      const auto [output, num_fewer_steps] = run(2, has_logprobs ? std::optional(2) : std::nullopt, is_streamed);
      EXPECT_EQ(output.token_ids, right.token_ids);
      EXPECT_EQ(output.text, right.text);
      EXPECT_EQ(output.finish_reason, right.finish_reason);
      EXPECT_LE(num_fewer_steps, num_steps - 18);
      if (!has_logprobs) continue;
      ASSERT_EQ(output.logprobs->size(), right.logprobs->size());
      for (std::size_t i = 0; i < right.logprobs->size(); ++i) {
        EXPECT_EQ((*output.logprobs)[i].logprob, (*right.logprobs)[i].logprob);
        EXPECT_EQ((*output.logprobs)[i].rank, (*right.logprobs)[i].rank);
        EXPECT_EQ((*output.logprobs)[i].top.size(), 2U);
      }
    }
  }
}

TEST_F(StructuredOutputs, RunInEveryStepAsOthersDo) {
  const auto engine = StructuredOutputs::engine();
  ASSERT_TRUE(engine);
  std::vector<GenerateRequest> requests;
  for (int i = 0; i < 12; ++i) {
    requests.push_back(request(GrammarKind::regex, "[a-z ,.]{400,900}"));
    requests.back().prompt = "Number " + std::to_string(i) + " of the children said that";
    requests.back().sampling.max_tokens = 150;
  }
  for (const auto& result : engine->generate(requests)) ASSERT_TRUE(result) << result.error().message;
  // Half of them in turn would take twice as many steps.
  EXPECT_LT(engine->stats().steps_total, 200);
}

/// The log-probabilities of `token` behind the prompt, as the model has it.
double logprob_of(Engine& engine, const TokenIds& prompt, TokenId token) {
  GenerateRequest request;
  request.prompt_token_ids.emplace(prompt.begin(), prompt.end());
  request.prompt_token_ids->push_back(token);
  request.sampling.max_tokens = 1;
  request.sampling.prompt_logprobs = 0;
  const auto result = engine.generate(std::move(request));
  EXPECT_TRUE(result);
  return result->prompt_logprobs->back().logprob;
}

TEST_F(StructuredOutputs, TokensAreDrawnFromTheRenormalisedDistribution) {
  const auto engine = StructuredOutputs::engine([](EngineConfig& c) {
    c.max_num_seqs = 64;
    c.max_num_batched_tokens = 256;
  });
  ASSERT_TRUE(engine);
  const TokenIds prompt = engine->tokenize("Once upon a time there lived a").value();
  std::vector<std::string> letters;
  std::map<TokenId, double> weights;
  double total = 0;
  for (const char* letter : {"a", "b", "e", "g", "l", "s", "t", "w"}) {
    const TokenIds ids = engine->tokenize(letter, false).value();
    ASSERT_EQ(ids.size(), 1U);
    letters.emplace_back(letter);
    total += weights[ids[0]] = std::exp(logprob_of(*engine, prompt, ids[0]) / 2);
  }
  constexpr int kDraws = 64 * 64;
  std::map<TokenId, int> counts;
  for (int i = 0; i < kDraws / 64; ++i) {
    GenerateRequest request;
    request.prompt_token_ids.emplace(prompt.begin(), prompt.end());
    request.sampling.max_tokens = 1;
    request.sampling.n = 64;
    request.sampling.temperature = 2;
    request.sampling.seed = static_cast<std::uint64_t>(i);
    request.sampling.logprobs = 0;
    request.sampling.structured_outputs = {GrammarKind::choice, {}, letters};
    const auto result = engine->generate(std::move(request));
    ASSERT_TRUE(result) << result.error().message;
    for (const auto& output : result->outputs) {
      const TokenId token = output.token_ids.at(0);
      ++counts[token];
      ASSERT_TRUE(weights.contains(token));
      // What is told is the model's own, not the renormalised one.
      EXPECT_NEAR(output.logprobs->front().logprob, 2 * std::log(weights[token]), 1e-3);
    }
  }
  double chi_square = 0;
  for (const auto& [token, weight] : weights) {
    const double expected = kDraws * weight / total;
    chi_square += (counts[token] - expected) * (counts[token] - expected) / expected;
  }
  EXPECT_LT(chi_square, 29.9) << "7 degrees of freedom: one in ten thousand";
}

}  // namespace
}  // namespace pagoda

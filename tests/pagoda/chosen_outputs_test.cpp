// Outputs that the engine chooses (best_of, beam search) and prompt logprobs, through the whole engine.

#include <algorithm>
#include <chrono>
#include <cmath>
#include <fstream>
#include <functional>
#include <future>
#include <map>
#include <memory>
#include <thread>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "pagoda/engine.hpp"
#include "tests/pagoda/test_models.hpp"
#include "tests/support/instruction_sets.hpp"
#include "tests/support/split_memory_device.hpp"

namespace pagoda {
namespace {

using nlohmann::json;

/// Single precision throughout, as the goldens were made.
std::unique_ptr<Engine> float32_engine(const std::string& model, const std::function<void(EngineConfig&)>& change = {},
                                       const EngineSetup& setup = {}) {
  EngineConfig config;
  config.model = model;
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

json beam_golden() {
  return json::parse(std::ifstream(PAGODA_SOURCE_DIR "/tests/data/sampling/beam_engine.json"));
}

GenerateRequest beam_request(const json& golden, const json& golden_case, std::int64_t eos) {
  GenerateRequest request;
  request.prompt_token_ids =
      golden["prompts"][golden_case["prompt"].get<std::size_t>()].get<std::vector<std::int64_t>>();
  SamplingParams& sampling = request.sampling;
  sampling.temperature = 0;
  sampling.use_beam_search = true;
  sampling.n = golden_case["n"];
  sampling.best_of = golden_case["width"].get<std::int64_t>();
  sampling.max_tokens = golden_case["max_tokens"];
  sampling.length_penalty = golden_case["length_penalty"];
  const std::string early = golden_case["early_stopping"];
  sampling.early_stopping = early == "yes"     ? EarlyStopping::yes
                            : early == "never" ? EarlyStopping::never
                                               : EarlyStopping::no;
  for (const std::int64_t id : golden_case["ending_tokens"]) {
    if (id != eos) sampling.stop_token_ids.push_back(id);
  }
  return request;
}

TEST(BeamSearchInTheEngine, GivesTheTokensAndScoresOfTransformers) {
  const json golden = beam_golden();
  ASSERT_GT(golden["cases"].size(), 30U);
  std::vector<GenerateRequest> requests;
  for (const json& golden_case : golden["cases"]) requests.push_back(beam_request(golden, golden_case, 1));
  const auto check = [&](const char* what, bool must_preempt, const std::function<void(EngineConfig&)>& change,
                         const EngineSetup& setup = {}) {
    SCOPED_TRACE(what);
    const auto engine = float32_engine(test::demo_model(), change, setup);
    ASSERT_TRUE(engine);
    const auto results = engine->generate(requests);
    for (std::size_t i = 0; i < results.size(); ++i) {
      const json& golden_case = golden["cases"][i];
      ASSERT_TRUE(results[i]) << results[i].error().message;
      ASSERT_EQ(results[i]->outputs.size(), golden_case["outputs"].size());
      std::int64_t num_tokens = 0;
      for (std::size_t k = 0; k < results[i]->outputs.size(); ++k) {
        const SequenceResult& output = results[i]->outputs[k];
        EXPECT_EQ(output.index, static_cast<std::int32_t>(k));
        EXPECT_EQ(output.token_ids, golden_case["outputs"][k]["tokens"].get<TokenIds>()) << golden_case;
        const auto length = static_cast<double>(output.token_ids.size());
        const double score = *output.cumulative_logprob / std::pow(length, golden_case["length_penalty"].get<double>());
        EXPECT_NEAR(score, golden_case["outputs"][k]["score"].get<double>(), 2e-3) << golden_case;
        num_tokens += std::ssize(output.token_ids);
      }
      EXPECT_EQ(results[i]->usage.completion_tokens, num_tokens);
    }
    const EngineStats stats = engine->stats();
    EXPECT_EQ(stats.preemptions_recompute_total + stats.preemptions_swap_total > 0, must_preempt);
  };
  check("plain", false, [](EngineConfig&) {});
  const auto on_device = [](EngineConfig& c) { c.device = "cuda"; };
  check("on a device with memory of its own", false, on_device,
        {.device =
             std::make_shared<test::SplitMemoryDevice>(test::SplitMemoryDevice::Options{.isa = test::exact_isa()})});
  check("small steps, no prefix cache", false, [](EngineConfig& c) {
    c.max_num_seqs = c.max_num_batched_tokens = 8;
    c.enable_prefix_caching = false;
  });
  check("preempted by recompute", true, [](EngineConfig& c) {
    c.block_size = 4;
    c.num_device_blocks = 60;
    c.preemption_mode = PreemptionPolicy::recompute;
  });
  check("preempted by swap", true, [](EngineConfig& c) {
    c.block_size = 4;
    c.num_device_blocks = 60;
    c.num_host_blocks = 500;
    c.preemption_mode = PreemptionPolicy::swap;
  });
}

struct Streamed {
  std::map<std::int32_t, std::string> text;
  std::map<std::int32_t, TokenIds> token_ids;
  RequestResult result;
  std::size_t num_messages = 0;
};

Streamed stream(Engine& engine, const GenerateRequest& request) {
  Streamed streamed;
  const auto done = std::make_shared<std::promise<void>>();
  const auto ticket = engine.submit(request, [&, done](const RequestOutput& output) {
    ++streamed.num_messages;
    for (const SequenceDelta& delta : output.deltas) {
      streamed.text[delta.index] += delta.text;
      auto& ids = streamed.token_ids[delta.index];
      ids.insert(ids.end(), delta.token_ids.begin(), delta.token_ids.end());
    }
    if (output.done) streamed.result = *output.done;
    if (output.done || output.error) done->set_value();
  });
  EXPECT_TRUE(ticket);
  if (ticket) done->get_future().wait();
  return streamed;
}

void expect_deltas_add_up(const Streamed& streamed) {
  EXPECT_EQ(streamed.num_messages, 1U) << "what is returned is known at the end only";
  EXPECT_EQ(streamed.text.size(), streamed.result.outputs.size());
  for (const SequenceResult& output : streamed.result.outputs) {
    EXPECT_EQ(streamed.text.at(output.index), output.text);
    EXPECT_EQ(streamed.token_ids.at(output.index), output.token_ids);
  }
}

TEST(BestOf, ReturnsTheSequencesWithTheHighestSumOfLogprobsBestFirst) {
  const auto engine = float32_engine(test::demo_model());
  ASSERT_TRUE(engine);
  GenerateRequest request;
  request.prompt = "The little fox";
  request.sampling.max_tokens = 60;
  request.sampling.seed = 11;
  request.sampling.stop = {"."};
  request.sampling.n = 6;
  request.sampling.logprobs = 0;
  auto all = engine->generate(request);
  ASSERT_TRUE(all);
  const auto sum = [](const SequenceResult& output) { return *output.cumulative_logprob; };
  std::ranges::stable_sort(all->outputs, std::ranges::greater{}, sum);

  request.sampling.n = 2;
  request.sampling.best_of = 6;
  request.sampling.logprobs.reset();
  const Streamed streamed = stream(*engine, request);
  ASSERT_EQ(streamed.result.outputs.size(), 2U);
  for (std::size_t i = 0; i < 2; ++i) {
    const SequenceResult& output = streamed.result.outputs[i];
    EXPECT_EQ(output.index, static_cast<std::int32_t>(i));
    EXPECT_EQ(output.text, all->outputs[i].text);
    EXPECT_NEAR(output.cumulative_logprob.value(), *all->outputs[i].cumulative_logprob, 1e-5);
    EXPECT_FALSE(output.logprobs);
  }
  EXPECT_EQ(streamed.result.usage.completion_tokens, all->usage.completion_tokens) << "also of those not chosen";
  expect_deltas_add_up(streamed);

  request.sampling.n = 6;  // all of them, as they come
  const Streamed ranked = stream(*engine, request);
  ASSERT_EQ(ranked.result.outputs.size(), 6U);
  EXPECT_GT(ranked.num_messages, 1U);
  for (std::size_t i = 0; i < 6; ++i) {
    const SequenceResult& output = ranked.result.outputs[i];
    EXPECT_EQ(output.index, all->outputs[i].index);
    EXPECT_EQ(output.text, all->outputs[i].text);
    EXPECT_EQ(ranked.text.at(output.index), output.text);
  }
}

TEST(BeamSearchInTheEngine, TellsItsTextAtTheEndWithOneLogprobPerToken) {
  const auto engine = float32_engine(test::demo_model());
  ASSERT_TRUE(engine);
  GenerateRequest request;
  request.prompt = "Once upon a time";
  request.sampling.temperature = 0;
  request.sampling.use_beam_search = true;
  request.sampling.n = 3;
  request.sampling.max_tokens = 20;
  request.sampling.logprobs = 2;
  const Streamed streamed = stream(*engine, request);
  ASSERT_EQ(streamed.result.outputs.size(), 3U);
  expect_deltas_add_up(streamed);
  for (const SequenceResult& output : streamed.result.outputs) {
    EXPECT_FALSE(output.text.empty());
    ASSERT_EQ(output.logprobs.value().size(), output.token_ids.size());
    double sum = 0;
    for (std::size_t i = 0; i < output.token_ids.size(); ++i) {
      const LogprobEntry& entry = (*output.logprobs)[i];
      EXPECT_EQ(entry.token_id, output.token_ids[i]);
      EXPECT_GE(entry.rank, 1);
      ASSERT_EQ(entry.top.size(), 2U);
      EXPECT_GE(entry.top[0].logprob, entry.logprob);
      sum += static_cast<double>(entry.logprob);
    }
    EXPECT_NEAR(*output.cumulative_logprob, sum, 1e-6);
  }
}

TEST(BeamSearchInTheEngine, SeveralShareStepsWhereverTheyBegin) {
  const auto engine = float32_engine(test::demo_model());
  ASSERT_TRUE(engine);
  GenerateRequest request;
  request.prompt = "Once upon a time";
  request.sampling.temperature = 0;
  request.sampling.use_beam_search = true;
  request.sampling.n = 2;
  request.sampling.ignore_eos = true;
  request.sampling.max_tokens = 150;
  std::vector<std::promise<void>> ends(4);
  std::int64_t steps = 0;
  for (std::promise<void>& end : ends) {  // one after the other: while a step of those before is in flight
    steps = engine->stats().steps_total;
    ASSERT_TRUE(engine->submit(request, [&end](const RequestOutput& output) {
      if (output.done) end.set_value();
    }));
    while (engine->stats().steps_total < steps + 3) std::this_thread::sleep_for(std::chrono::microseconds(100));
  }
  for (std::promise<void>& end : ends) end.get_future().get();
  EXPECT_LT(engine->stats().steps_total - steps, 200) << "turns would take nearly 300";
}

TEST(BeamSearchInTheEngine, IsCancelledLikeAnyRequest) {
  const auto engine = float32_engine(test::demo_model());
  ASSERT_TRUE(engine);
  GenerateRequest request;
  request.prompt = "Once upon a time";
  request.sampling.temperature = 0;
  request.sampling.use_beam_search = true;
  request.sampling.n = 4;
  request.sampling.ignore_eos = true;
  request.sampling.max_tokens = 1000;
  const auto done = std::make_shared<std::promise<RequestResult>>();
  const auto ticket = engine->submit(request, [done](const RequestOutput& output) {
    if (output.done) done->set_value(*output.done);
  });
  ASSERT_TRUE(ticket);
  while (engine->stats().steps_total < 5) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  ASSERT_TRUE(engine->cancel(*ticket));
  const RequestResult result = done->get_future().get();
  ASSERT_EQ(result.outputs.size(), 4U);
  for (const SequenceResult& output : result.outputs) EXPECT_EQ(output.finish_reason, FinishReason::abort);
}

TEST(PromptLogprobs, AreThoseOfTransformers) {
  const json golden = beam_golden();
  for (const int budget : {4, 64}) {
    const auto engine = float32_engine(test::demo_model(),
                                       [&](EngineConfig& c) { c.max_num_seqs = c.max_num_batched_tokens = budget; });
    ASSERT_TRUE(engine);
    for (std::size_t p = 0; p < golden["prompts"].size(); ++p) {
      GenerateRequest request;
      request.prompt_token_ids = golden["prompts"][p].get<std::vector<std::int64_t>>();
      request.sampling.max_tokens = 4;
      request.sampling.n = 3;
      request.sampling.prompt_logprobs = 3;
      const auto result = engine->generate(request);
      ASSERT_TRUE(result) << result.error().message;
      const json& expected = golden["prompt_logprobs"][p];
      ASSERT_EQ(result->prompt_logprobs.value().size(), expected.size());
      for (std::size_t i = 0; i < expected.size(); ++i) {
        const LogprobEntry& entry = (*result->prompt_logprobs)[i];
        EXPECT_EQ(entry.token_id, expected[i]["token"].get<TokenId>());
        EXPECT_NEAR(entry.logprob, expected[i]["logprob"].get<double>(), 2e-3);
        EXPECT_EQ(entry.rank, expected[i]["rank"].get<std::int32_t>());
        ASSERT_EQ(entry.top.size(), 3U);
        for (std::size_t k = 0; k < 3; ++k) {
          EXPECT_EQ(entry.top[k].token_id, expected[i]["top"][k][0].get<TokenId>());
          EXPECT_NEAR(entry.top[k].logprob, expected[i]["top"][k][1].get<double>(), 2e-3);
        }
      }
    }
  }
}

TEST(PromptLogprobs, OfTheSharedModelAreTheExpectedOnes) {
  PAGODA_NEEDS_SHARED_DATA();
  const auto engine = float32_engine(test::shared_path("models/stories260k"));
  ASSERT_TRUE(engine);
  const json golden = json::parse(std::ifstream(test::shared_path("goldens/stories260k_greedy.json")));
  for (const json& g : golden) {
    GenerateRequest request;
    request.prompt = g["prompt"];
    request.sampling.max_tokens = 1;
    request.sampling.prompt_logprobs = 0;
    const auto result = engine->generate(request);
    ASSERT_TRUE(result) << result.error().message;
    ASSERT_EQ(result->prompt_logprobs.value().size() + 1, g["prompt_logprobs"].size());
    for (std::size_t i = 1; i < g["prompt_logprobs"].size(); ++i) {
      EXPECT_NEAR((*result->prompt_logprobs)[i - 1].logprob, g["prompt_logprobs"][i].get<double>(), 2e-3);
    }
  }
}

}  // namespace
}  // namespace pagoda

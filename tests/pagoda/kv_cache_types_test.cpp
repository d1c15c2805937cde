// Golden models with every type of the KV cache: each gives one result, whatever the schedule, and one that is near
// that of a float32 cache.

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <stdexcept>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "pagoda/engine.hpp"
#include "tests/pagoda/golden_model.hpp"
#include "tests/support/instruction_sets.hpp"

namespace pagoda {
namespace {

constexpr std::int64_t kOutputTokens = 48;

/// Tokens and log-probabilities of one request, those of the prompt first.
struct Output {
  TokenIds tokens;
  std::vector<double> logprobs;

  bool operator==(const Output&) const = default;
};

class KvCacheTypes : public testing::TestWithParam<std::tuple<std::string, std::string>> {
 protected:
  using Change = std::function<void(EngineConfig&)>;

  std::unique_ptr<Engine> engine_with(const Change& change) const {
    EngineConfig config;
    config.model = model_.path();
    config.threads = 2;
    config.max_num_seqs = 8;
    config.block_size = 4;
    config.num_device_blocks = 600;
    config.num_host_blocks = 0;
    config.kv_cache_dtype = std::get<1>(GetParam());
    change(config);
    auto engine = Engine::create(config);
    if (!engine) throw std::runtime_error(engine.error().message);
    return std::move(*engine);
  }

  /// Two requests of each golden prompt: one with the log-probabilities of its prompt, which no prefix cache serves.
  std::vector<GenerateRequest> requests() const {
    std::vector<GenerateRequest> requests;
    for (const bool prompt_logprobs : {true, false}) {
      for (const auto& golden_case : cases_) {
        GenerateRequest request;
        request.prompt_token_ids = golden_case.at("prompt_token_ids").get<std::vector<std::int64_t>>();
        request.sampling.max_tokens = kOutputTokens;
        request.sampling.temperature = 0;
        request.sampling.ignore_eos = true;
        request.sampling.logprobs = 0;
        if (prompt_logprobs) request.sampling.prompt_logprobs = 0;
        requests.push_back(std::move(request));
      }
    }
    return requests;
  }

  static Output output_of(const Result<RequestResult>& result) {
    if (!result) throw std::runtime_error(result.error().message);
    Output output{result->outputs.at(0).token_ids, {}};
    if (result->prompt_logprobs) {
      for (const auto& entry : *result->prompt_logprobs) output.logprobs.push_back(entry.logprob);
    }
    for (const auto& entry : *result->outputs.at(0).logprobs) output.logprobs.push_back(entry.logprob);
    return output;
  }

  std::vector<Output> run_together(Engine& engine) const {
    std::vector<Output> outputs;
    for (const auto& result : engine.generate(requests())) outputs.push_back(output_of(result));
    return outputs;
  }

  std::vector<Output> run_one_by_one(const Change& change) const {
    const auto engine = engine_with([&](EngineConfig& config) {
      config.pipeline_depth = 1;
      config.enable_prefix_caching = false;
      change(config);
    });
    std::vector<Output> outputs;
    for (const auto& request : requests()) outputs.push_back(output_of(engine->generate(request)));
    return outputs;
  }

  /// Blocks for the longest request and a little more, so that requests preempt each other.
  static void make_blocks_scarce(EngineConfig& config, std::size_t longest_prompt, const test::ServableModel& model) {
    constexpr std::int32_t kChunk = 8;
    config.max_num_batched_tokens = kChunk;
    const KvLayout layout = model.layout(config.block_size);
    const auto num_tokens = static_cast<std::int32_t>(longest_prompt + kOutputTokens) + 1;
    config.num_device_blocks = layout.peak_blocks(num_tokens, kChunk) + 2 * layout.num_groups();
  }

  std::size_t longest_prompt() const {
    std::size_t longest = 0;
    for (const auto& golden_case : cases_) longest = std::max(longest, golden_case.at("prompt_token_ids").size());
    return longest;
  }

  const test::ServableModel model_{std::get<0>(GetParam())};
  const nlohmann::json cases_ = test::golden_cases(std::get<0>(GetParam()));
};

TEST_P(KvCacheTypes, GiveTheSameTokensAndLogprobsInEverySchedule) {
  const auto expected = run_one_by_one([](EngineConfig&) {});
  EXPECT_EQ(run_one_by_one([](EngineConfig& config) { config.block_size = 16; }), expected) << "blocks of 16";
  EXPECT_EQ(run_together(*engine_with([](EngineConfig& config) { config.pipeline_depth = 1; })), expected) << "depth 1";

  const auto engine = engine_with([](EngineConfig&) {});
  EXPECT_EQ(run_together(*engine), expected) << "depth 2";
  EXPECT_EQ(run_together(*engine), expected) << "depth 2, again";
  EXPECT_GT(engine->stats().prefix_cache_hits_total, 0);

  const auto chunked = engine_with([](EngineConfig& config) { config.max_num_batched_tokens = 8; });
  EXPECT_EQ(run_together(*chunked), expected) << "in chunks";
}

TEST_P(KvCacheTypes, SurvivePreemption) {
  const auto expected = run_one_by_one([](EngineConfig&) {});
  const auto swapping = engine_with([&](EngineConfig& config) {
    make_blocks_scarce(config, longest_prompt(), model_);
    config.preemption_mode = PreemptionPolicy::swap;
    config.num_host_blocks = 600;
  });
  EXPECT_EQ(run_together(*swapping), expected) << "swapped";
  EXPECT_GT(swapping->stats().preemptions_swap_total, 0);

  const auto recomputing = engine_with([&](EngineConfig& config) {
    make_blocks_scarce(config, longest_prompt(), model_);
    config.preemption_mode = PreemptionPolicy::recompute;
  });
  EXPECT_EQ(run_together(*recomputing), expected) << "recomputed";
  EXPECT_GT(recomputing->stats().preemptions_recompute_total, 0);
}

TEST_P(KvCacheTypes, StayNearTheLogprobsOfTransformers) {
  // These models have random weights, so that their probabilities are more sensitive than those of real ones. The
  // bounds go by the bits of a value: 11, 8, 4, and at most 7.
  const std::map<std::string, double> most_rms = {
      {"float16", 0.006}, {"bfloat16", 0.05}, {"fp8_e4m3", 0.7}, {"int8", 0.1}};
  const auto engine = engine_with([](EngineConfig& config) { config.cpu_isa = test::exact_isa(); });
  const auto all = requests();
  double squares = 0;
  std::size_t count = 0;
  for (std::size_t i = 0; i < cases_.size(); ++i) {
    const auto expected = cases_[i].at("float32").at("prompt_logprobs").get<std::vector<double>>();
    const Output output = output_of(engine->generate(all[i]));
    for (std::size_t token = 0; token < expected.size(); ++token) {
      const double change = output.logprobs.at(token) - expected[token];
      squares += change * change;
      ++count;
    }
  }
  ASSERT_GT(count, 0U);
  const double bound = most_rms.at(std::get<1>(GetParam()));
  EXPECT_LT(std::sqrt(squares / static_cast<double>(count)), bound);
}

INSTANTIATE_TEST_SUITE_P(Models, KvCacheTypes,
                         testing::Combine(testing::Values("llama-gqa-bf16", "llama-mqa-odd", "baichuan-13b-f32",
                                                          "mistral-window-f32", "qwen3-gqa-f32"),
                                          testing::Values("float16", "bfloat16", "fp8_e4m3", "int8")),
                         [](const auto& test) {
                           std::string name = std::get<0>(test.param) + "_" + std::get<1>(test.param);
                           std::ranges::replace(name, '-', '_');
                           return name;
                         });

}  // namespace
}  // namespace pagoda

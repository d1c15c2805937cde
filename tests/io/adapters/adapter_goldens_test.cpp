// The adapters of tests/data/adapters on their models: logits and greedy tokens are those of peft
// (tools/make_adapter_goldens.py).

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "io/adapters/base_weights.hpp"
#include "io/adapters/read_adapter.hpp"
#include "io/model_files/file_text.hpp"
#include "io/model_files/model_files.hpp"
#include "tests/engine/adapters/adapted_model.hpp"
#include "tests/engine/models/model_runner.hpp"
#include "tests/io/adapters/golden_adapters.hpp"
#include "tests/support/instruction_sets.hpp"

namespace pagoda::io {
namespace {

constexpr std::size_t kMaxTokens = 64;  // of a sequence, without virtual tokens

void expect_logits(const std::vector<float>& actual, const nlohmann::json& expected) {
  const auto values = expected.get<std::vector<float>>();
  ASSERT_EQ(actual.size(), values.size());
  double largest = 0.0;
  double difference = 0.0;
  for (std::size_t i = 0; i < values.size(); ++i) {
    largest = std::max<double>(largest, std::abs(values[i]));
    difference = std::max<double>(difference, std::abs(actual[i] - values[i]));
  }
  EXPECT_LT(difference / largest, 1e-4);
}

/// `logits`: those of a prompt and of the expected greedy tokens after it, as many as fit.
void expect_results(const std::vector<std::vector<float>>& logits, std::size_t prompt_size,
                    const nlohmann::json& expected) {
  expect_logits(logits[prompt_size - 1], expected.at("logits"));
  const auto tokens = expected.at("greedy").at("token_ids").get<TokenIds>();
  const auto logprobs = expected.at("greedy").at("logprobs").get<std::vector<double>>();
  for (std::size_t i = 0; prompt_size - 1 + i < logits.size() && i < tokens.size(); ++i) {
    const auto& row = logits[prompt_size - 1 + i];
    EXPECT_EQ(test::argmax(row), tokens[i]) << "token " << i;
    EXPECT_NEAR(test::logprob(row, tokens[i]), logprobs[i], 1e-3) << "token " << i;
  }
}

TokenIds tokens_of(const nlohmann::json& golden_case, const char* side) {
  auto tokens = golden_case.at("prompt_token_ids").get<TokenIds>();
  const auto greedy = golden_case.at(side).at("greedy").at("token_ids").get<TokenIds>();
  tokens.insert(tokens.end(), greedy.begin(), greedy.end());
  tokens.resize(std::min(tokens.size(), kMaxTokens));
  return tokens;
}

/// Runs all cases of the adapters, with the adapter and without, in one batch.
void expect_goldens(const std::filesystem::path& base, const std::vector<std::string>& names, std::int64_t chunk) {
  const auto files = open_model_files(base).value();
  const auto weights = files->weights().value();
  const auto device = kernels::create_cpu_device({.num_threads = 1, .isa = test::exact_isa()}).value();
  test::AdaptedModel model(files->spec().value(), *weights, device);
  std::vector<test::GoldenAdapter> goldens;
  std::vector<std::unique_ptr<const adapters::BoundAdapter>> bound;
  std::vector<test::AdaptedPrompt> prompts;
  for (const std::string& name : names) {
    goldens.emplace_back(name);
    auto adapter = goldens.back().read().value();
    const auto dropped = drop_base_weights(adapter, *weights);
    ASSERT_TRUE(dropped) << dropped.error().message;
    bound.push_back(model.bind(adapter));
    ASSERT_NE(bound.back(), nullptr);
    for (const auto& golden_case : goldens.back().json().at("cases")) {
      prompts.push_back({tokens_of(golden_case, "adapter"), bound.back().get()});
      prompts.push_back({tokens_of(golden_case, "base"), nullptr});
    }
  }
  const auto results = model.run(prompts, chunk);
  std::size_t i = 0;
  for (std::size_t k = 0; k < names.size(); ++k) {
    for (const auto& golden_case : goldens[k].json().at("cases")) {
      const std::size_t prompt_size = golden_case.at("prompt_token_ids").size();
      for (const char* side : {"adapter", "base"}) {
        SCOPED_TRACE(names[k] + ", " + golden_case.at("name").get<std::string>() + ", " + side);
        expect_results(results[i++], prompt_size, golden_case.at(side));
      }
    }
  }
}

class AdapterGoldens : public ::testing::TestWithParam<std::string> {};

TEST_P(AdapterGoldens, LogitsAndTokensAreThoseOfPeft) {
  expect_goldens(test::GoldenAdapter(GetParam()).base(), {GetParam()}, kMaxTokens);
}

INSTANTIATE_TEST_SUITE_P(Models, AdapterGoldens, ::testing::ValuesIn(test::golden_adapter_names()),
                         [](const auto& name) { return test::test_name(name.param); });

/// Adapters of all kinds in one batch, whose prompts run in pieces.
class AdaptersOfOneModel : public ::testing::TestWithParam<std::string> {};

TEST_P(AdaptersOfOneModel, GiveInOneBatchWhatTheyGiveAlone) {
  std::vector<std::string> names;
  for (const std::string& name : test::golden_adapter_names()) {
    if (test::GoldenAdapter(name).base().filename() == GetParam()) names.push_back(name);
  }
  constexpr std::int64_t kChunk = 7;
  expect_goldens(test::golden_data() / "models" / GetParam(), names, kChunk);
}

INSTANTIATE_TEST_SUITE_P(Models, AdaptersOfOneModel, ::testing::ValuesIn(test::golden_adapter_bases()),
                         [](const auto& name) { return test::test_name(name.param); });

}  // namespace
}  // namespace pagoda::io

// The adapters of tests/data/adapters and of examples/adapters on their models: logits and greedy tokens are those of
// peft (tools/make_adapter_goldens.py, tools/make_lora.py).

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <memory>
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

/// `logits`: those of a prompt and of the expected greedy tokens after it, as many as fit. `greedy` has the tokens and
/// their log probabilities.
void expect_greedy(const std::vector<std::vector<float>>& logits, std::size_t prompt_size,
                   const nlohmann::json& greedy) {
  const auto tokens = greedy.at("token_ids").get<TokenIds>();
  const auto logprobs = greedy.at("logprobs").get<std::vector<double>>();
  for (std::size_t i = 0; prompt_size - 1 + i < logits.size() && i < tokens.size(); ++i) {
    const auto& row = logits[prompt_size - 1 + i];
    EXPECT_EQ(test::argmax(row), tokens[i]) << "token " << i;
    EXPECT_NEAR(test::logprob(row, tokens[i]), logprobs[i], 1e-3) << "token " << i;
  }
}

TokenIds joined(TokenIds prompt, const TokenIds& greedy) {
  prompt.insert(prompt.end(), greedy.begin(), greedy.end());
  prompt.resize(std::min(prompt.size(), kMaxTokens));
  return prompt;
}

TokenIds tokens_of(const nlohmann::json& golden_case, const char* side) {
  return joined(golden_case.at("prompt_token_ids").get<TokenIds>(),
                golden_case.at(side).at("greedy").at("token_ids").get<TokenIds>());
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
        expect_logits(results[i][prompt_size - 1], golden_case.at(side).at("logits"));
        expect_greedy(results[i++], prompt_size, golden_case.at(side).at("greedy"));
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

TEST(ExampleAdapters, WriteTheTokensOfPeftBesideTheDemoModel) {
  const std::filesystem::path root = PAGODA_SOURCE_DIR;
  const auto files = open_model_files(root / "examples" / "models" / "pagoda-stories").value();
  const auto weights = files->weights().value();
  const auto spec = files->spec().value();
  const auto device = kernels::create_cpu_device({.num_threads = 1, .isa = test::exact_isa()}).value();
  test::AdaptedModel model(spec, *weights, device);
  struct Style {
    std::unique_ptr<const adapters::BoundAdapter> adapter;
    nlohmann::json goldens;
  };
  std::vector<Style> styles;  // the demo model without an adapter, then its adapters
  for (const std::string name : {"", "dragons", "bedtime"}) {
    Style& style = styles.emplace_back();
    const auto golden = test::golden_data() / "models" / "pagoda-stories";
    style.goldens = read_json_file(golden / (name.empty() ? "greedy.json" : "greedy_" + name + ".json"), 10'000'000,
                                   ErrorCode::bad_file)
                        .value();
    if (name.empty()) continue;
    const auto adapter = read_adapter(root / "examples" / "adapters" / name, spec.decoder.attention_of(0).head_dim);
    ASSERT_TRUE(adapter) << adapter.error().message;
    style.adapter = model.bind(*adapter);
    ASSERT_NE(style.adapter, nullptr);
  }
  for (std::size_t i = 0; i < 8; ++i) {
    std::vector<test::AdaptedPrompt> prompts;
    for (const Style& style : styles) {
      const auto& golden = style.goldens.at(i);
      prompts.push_back({joined(golden.at("prompt_token_ids"), golden.at("token_ids")), style.adapter.get()});
    }
    const auto results = model.run(prompts);
    for (std::size_t j = 0; j < styles.size(); ++j) {
      const auto& golden = styles[j].goldens.at(i);
      SCOPED_TRACE(golden.at("prompt").get<std::string>() + ", style " + std::to_string(j));
      expect_greedy(results[j], golden.at("prompt_token_ids").size(), golden);
    }
  }
}

}  // namespace
}  // namespace pagoda::io

// Compares every model folder under tests/data/models with the results of Hugging Face transformers.

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <numeric>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "io/model_files/checkpoint.hpp"
#include "tests/engine/models/model_runner.hpp"

namespace pagoda::models {
namespace {

using nlohmann::json;
using test::argmax;
using test::logprob;
using test::ModelRunner;
using Rows = ModelRunner::Rows;

std::vector<std::string> golden_names() {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(PAGODA_SOURCE_DIR "/tests/data/models")) {
    if (std::filesystem::exists(entry.path() / "golden.json")) names.push_back(entry.path().filename().string());
  }
  std::ranges::sort(names);
  return names;
}

class Golden : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    std::ifstream file(folder_ / "golden.json");
    golden_ = json::parse(file);
  }

  static TokenIds prompt_of(const json& golden_case) { return golden_case.at("prompt_token_ids").get<TokenIds>(); }
  static std::string name_of(const json& golden_case) { return golden_case.at("name").get<std::string>(); }

  const std::filesystem::path folder_ = std::filesystem::path(PAGODA_SOURCE_DIR "/tests/data/models") / GetParam();
  json golden_;
};

/// Returns the largest difference, relative to the largest magnitude of the expected row (a logit near zero is a sum of
/// large terms).
double relative_error(const std::vector<float>& actual, const std::vector<float>& expected) {
  double largest = 0.0;
  double difference = 0.0;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    largest = std::max<double>(largest, std::abs(expected[i]));
    difference = std::max<double>(difference, std::abs(actual[i] - expected[i]));
  }
  return difference / largest;
}

/// Feeds the tokens one by one, as decode does. Returns the logits after each.
Rows run_one_by_one(ModelRunner& runner, const TokenIds& tokens) {
  const int sequence = runner.add_sequence();
  Rows rows;
  for (const auto token : tokens) rows.push_back(runner.run(sequence, {token}).front());
  return rows;
}

TEST_P(Golden, LogitsOfAPromptAreThoseOfTransformersInFloat32) {
  ModelRunner runner(folder_);
  for (const auto& golden_case : golden_.at("cases")) {
    const auto logits = runner.run(runner.add_sequence(), prompt_of(golden_case));
    for (const auto& expected : golden_case.at("float32").at("logits")) {
      const auto& actual = logits.at(expected.at("position").get<std::size_t>());
      const auto values = expected.at("values").get<std::vector<float>>();
      ASSERT_EQ(actual.size(), values.size());
      EXPECT_LT(relative_error(actual, values), 1e-4)
          << name_of(golden_case) << " position " << expected.at("position");
    }
  }
}

TEST_P(Golden, LogitsStayWithinBfloat16RoundingWhereProductsRound) {
  if (test::rounding_isas().empty()) GTEST_SKIP() << "this machine has no instruction set that rounds";
  for (const std::string& isa : test::rounding_isas()) {
    ModelRunner runner(folder_, {.isa = isa});
    for (const auto& golden_case : golden_.at("cases")) {
      const auto logits = runner.run(runner.add_sequence(), prompt_of(golden_case));
      for (const auto& expected : golden_case.at("float32").at("logits")) {
        const auto values = expected.at("values").get<std::vector<float>>();
        // Each product rounds its other operand by up to 1/512, which the random weights of these models amplify.
        EXPECT_LT(relative_error(logits.at(expected.at("position").get<std::size_t>()), values), 0.08)
            << isa << " " << name_of(golden_case) << " position " << expected.at("position");
      }
    }
  }
}

TEST_P(Golden, LogitsStayWithinBfloat16RoundingOfTransformersInBfloat16) {
  ModelRunner runner(folder_);
  for (const auto& golden_case : golden_.at("cases")) {
    if (!golden_case.contains("bfloat16")) continue;
    const auto logits = runner.run(runner.add_sequence(), prompt_of(golden_case));
    for (const auto& expected : golden_case.at("bfloat16").at("logits")) {
      const auto values = expected.at("values").get<std::vector<float>>();
      // bfloat16 keeps 8 bits: each of transformers' operations rounds by up to 1/256.
      EXPECT_LT(relative_error(logits.at(expected.at("position").get<std::size_t>()), values), 0.05)
          << name_of(golden_case);
    }
  }
}

TEST_P(Golden, GreedyTokensAndTheirLogprobsAreThoseOfTransformers) {
  ModelRunner runner(folder_);
  for (const auto& golden_case : golden_.at("cases")) {
    const auto& greedy = golden_case.at("float32").at("greedy");
    const auto expected_logprobs = greedy.at("logprobs").get<std::vector<double>>();
    const int sequence = runner.add_sequence();
    auto last = runner.run(sequence, prompt_of(golden_case)).back();
    TokenIds tokens;
    for (const double expected : expected_logprobs) {
      tokens.push_back(argmax(last));
      EXPECT_NEAR(logprob(last, tokens.back()), expected, 1e-3) << name_of(golden_case) << " token " << tokens.size();
      last = runner.run(sequence, {tokens.back()}).front();
    }
    EXPECT_EQ(tokens, greedy.at("token_ids").get<TokenIds>()) << name_of(golden_case);
  }
}

TEST_P(Golden, LogitsDoNotDependOnChunksBlockSizeThreadsOrBatchMates) {
  const std::string fastest;
  ModelRunner plain(folder_, {.isa = fastest});
  std::vector<Rows> expected;
  std::vector<ModelRunner::Chunk> together;
  for (const auto& golden_case : golden_.at("cases")) {
    expected.push_back(plain.run(plain.add_sequence(), prompt_of(golden_case)));
  }
  for (const std::int32_t block_size : {4, 16, 32}) {
    ModelRunner runner(folder_, {.block_size = block_size, .num_threads = 2, .isa = fastest});
    std::vector<ModelRunner::Chunk> batch;
    for (std::size_t i = 0; i < expected.size(); ++i) {
      const auto prompt = prompt_of(golden_.at("cases").at(i));
      batch.push_back({runner.add_sequence(), prompt});
      EXPECT_EQ(run_one_by_one(runner, prompt), expected[i]) << "token by token, block size " << block_size;
    }
    EXPECT_EQ(runner.run(batch), expected) << "as one batch, block size " << block_size;

    const int sequence = runner.add_sequence();
    const auto longest = prompt_of(golden_.at("cases").back());
    Rows chunked;
    for (std::size_t begin = 0; begin < longest.size(); begin += 7) {
      const auto end = std::min(begin + 7, longest.size());
      const auto rows = runner.run(sequence, TokenIds(longest.begin() + static_cast<std::ptrdiff_t>(begin),
                                                      longest.begin() + static_cast<std::ptrdiff_t>(end)));
      chunked.insert(chunked.end(), rows.begin(), rows.end());
    }
    EXPECT_EQ(chunked, expected.back()) << "in chunks of 7, block size " << block_size;
  }
}

TEST_P(Golden, LogitsOfAnyRowsOfTheLastRunCanBeAskedFor) {
  ModelRunner runner(folder_);
  const auto prompt = prompt_of(golden_.at("cases").back());
  const auto all = runner.run(runner.add_sequence(), prompt);
  const auto last = static_cast<std::int32_t>(prompt.size()) - 1;
  EXPECT_EQ(runner.logits({last}), Rows{all.back()});
  EXPECT_EQ(runner.logits({last, 0, last}), (Rows{all.back(), all.front(), all.back()}));
  EXPECT_EQ(runner.logits({}), Rows{});
}

/// Returns the matrix [vocab_size, hidden width] that a checkpoint has for the head, as Hugging Face names it.
std::vector<float> stored_head(const io::Checkpoint& checkpoint, const ModelSpec& spec, std::int64_t width) {
  for (const char* name : {"lm_head.weight", "model.embed_tokens.weight", "transformer.wte.weight", "wte.weight",
                           "model.decoder.embed_tokens.weight", "decoder.embed_tokens.weight"}) {
    if (!checkpoint.contains(name) || (spec.tie_word_embeddings && name == std::string("lm_head.weight"))) continue;
    const auto tensor = checkpoint.tensor(name, {spec.vocab_size, width}).value();
    std::vector<float> head;
    for (std::int64_t i = 0; i < tensor.elements(); ++i) {
      head.push_back(tensor.dtype == DType::f32    ? static_cast<const float*>(tensor.data)[i]
                     : tensor.dtype == DType::bf16 ? to_float(static_cast<const BFloat16*>(tensor.data)[i])
                                                   : to_float(static_cast<const Float16*>(tensor.data)[i]));
    }
    return head;
  }
  ADD_FAILURE() << "no head";
  return {};
}

/// Computes the logits of the products of hidden rows and head, as config.json describes it.
float scaled(const nlohmann::json& config, double product) {
  const auto softcap = config.find("final_logit_softcapping");
  const double logit = config.value("logit_scale", 1.0) / config.value("logits_scaling", 1.0) * product;
  if (softcap == config.end() || softcap->is_null()) return static_cast<float>(logit);
  return static_cast<float>(softcap->get<double>() * std::tanh(logit / softcap->get<double>()));
}

TEST_P(Golden, HiddenRowsTimesTheHeadAreTheLogits) {
  ModelRunner runner(folder_);
  const auto checkpoint = io::Checkpoint::open(folder_).value();
  const auto width = runner.model().hidden_width();
  const auto head = stored_head(*checkpoint, runner.spec(), width);
  const auto config = nlohmann::json::parse(std::ifstream(folder_ / "config.json"));
  const auto& facts = runner.spec().facts;
  const bool normalized = std::ranges::find(facts, Fact{"normalized_head", true}) != facts.end();
  const auto prompt = prompt_of(golden_.at("cases").back());
  const auto logits = runner.run(runner.add_sequence(), prompt);
  const std::vector<std::int32_t> rows = {static_cast<std::int32_t>(prompt.size()) - 1, 0};
  const auto hidden = runner.hidden(rows);
  ASSERT_EQ(hidden.size(), rows.size());
  for (std::size_t i = 0; i < rows.size(); ++i) {
    ASSERT_EQ(hidden[i].size(), static_cast<std::size_t>(width));
    std::vector<float> expected;
    for (auto weight = head.begin(); weight != head.end(); weight += width) {
      const double length = normalized ? std::sqrt(std::inner_product(weight, weight + width, weight, 0.0)) : 1.0;
      expected.push_back(scaled(config, std::inner_product(weight, weight + width, hidden[i].begin(), 0.0) / length));
    }
    // A normalised head is rounded to its type; otherwise both are sums of the same products.
    EXPECT_LT(relative_error(logits[static_cast<std::size_t>(rows[i])], expected), normalized ? 1e-2 : 1e-5);
  }
}

INSTANTIATE_TEST_SUITE_P(Models, Golden, testing::ValuesIn(golden_names()), [](const auto& test) {
  std::string name = test.param;
  std::ranges::replace(name, '-', '_');
  return name;
});

}  // namespace
}  // namespace pagoda::models

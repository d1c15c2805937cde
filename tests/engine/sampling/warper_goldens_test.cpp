#include <fstream>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "kernels/cpu/sample.hpp"
#include "kernels/random.hpp"
#include "kernels/reference/sample.hpp"
#include "kernels/thread_pool.hpp"

// Checks that each case draws from the distribution of transformers (tests/data/sampling/warpers.json, written by
// tools/make_sampling_goldens.py).
namespace pagoda {
namespace {

using nlohmann::json;

struct Golden {
  json data;
  std::vector<float> logits;
  std::int64_t vocab = 0;
  std::vector<std::int32_t> context;

  Golden() {
    std::ifstream file(PAGODA_SOURCE_DIR "/tests/data/sampling/warpers.json");
    data = json::parse(file);
    for (const json& row : data["logits"]) {
      const auto values = row.get<std::vector<float>>();
      vocab = static_cast<std::int64_t>(values.size());
      logits.insert(logits.end(), values.begin(), values.end());
    }
    context = data["context"].get<std::vector<std::int32_t>>();
  }

  kernels::SampleRow row(const json& test_case) const {
    kernels::SampleRow row;
    row.logits_row = test_case["row"];
    row.temperature = test_case["temperature"];
    row.top_k = test_case["top_k"];
    row.top_p = test_case["top_p"];
    row.min_p = test_case["min_p"];
    row.repetition_penalty = test_case["repetition_penalty"];
    row.prompt_tokens = context;
    return row;
  }

  kernels::SampleParams params(std::span<const kernels::SampleRow> rows, kernels::SampleOutput* outputs) const {
    return {.logits = logits.data(),
            .num_logit_rows = static_cast<std::int64_t>(logits.size()) / vocab,
            .vocab = vocab,
            .rows = rows,
            .outputs = outputs};
  }
};

std::vector<double> expected_probabilities(const json& test_case, std::int64_t vocab) {
  std::vector<double> probabilities(static_cast<std::size_t>(vocab), 0);
  for (const json& entry : test_case["probabilities"]) probabilities[entry[0].get<std::size_t>()] = entry[1];
  return probabilities;
}

TEST(WarperGoldens, TheReferenceDistributionIsThatOfTransformers) {
  const Golden golden;
  for (const json& test_case : golden.data["cases"]) {
    const kernels::SampleRow row = golden.row(test_case);
    const auto got = kernels::reference_distribution(golden.params({&row, 1}, nullptr), row);
    const auto expected = expected_probabilities(test_case, golden.vocab);
    for (std::size_t token = 0; token < got.size(); ++token) {
      ASSERT_NEAR(got[token], expected[token], 2e-6) << test_case << " token " << token;
      ASSERT_EQ(got[token] == 0, expected[token] == 0) << test_case << " token " << token;
    }
  }
}

TEST(WarperGoldens, TheCpuDrawInvertsTheCumulativeDistributionOfTransformers) {
  const Golden golden;
  kernels::ThreadPool pool(1);
  for (const json& test_case : golden.data["cases"]) {
    std::vector<kernels::SampleRow> rows(500, golden.row(test_case));
    for (std::size_t i = 0; i < rows.size(); ++i) rows[i].seed = i;
    std::vector<kernels::SampleOutput> outputs(rows.size());
    ASSERT_TRUE(kernels::cpu_sample(pool, golden.params(rows, outputs.data())));
    const auto expected = expected_probabilities(test_case, golden.vocab);
    for (std::size_t i = 0; i < rows.size(); ++i) {
      const double uniform = kernels::sampling_uniform(rows[i].seed, 0, 0);
      double below = 0;
      for (std::int32_t token = 0; token < outputs[i].token; ++token) below += expected[token];
      ASSERT_GE(uniform, below - 1e-5) << test_case;
      ASSERT_LE(uniform, below + expected[outputs[i].token] + 1e-5) << test_case;
    }
  }
}

}  // namespace
}  // namespace pagoda

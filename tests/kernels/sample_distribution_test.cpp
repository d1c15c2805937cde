#include <cmath>

#include <gtest/gtest.h>

#include "kernels/reference/sample.hpp"
#include "tests/kernels/op_backends.hpp"
#include "tests/kernels/sample_batch.hpp"

// Compares many draws of one row, with different seeds, with the analytic distribution by Pearson's chi-square test.
// Seeds are fixed, so the result is too; the threshold is the 0.9999 quantile.
namespace pagoda::kernels {
namespace {

using test::random_logits;
using test::SampleBatch;

/// Returns the quantile of chi-square at standard normal deviate z (Wilson and Hilferty, 1931).
double chi_square_quantile(double degrees, double z) {
  const double a = 2.0 / (9.0 * degrees);
  return degrees * std::pow(1.0 - a + z * std::sqrt(a), 3);
}

struct Filters {
  const char* name;
  float temperature;
  std::int32_t top_k;
  float top_p;
  float min_p;
  bool penalised;
};

class SampleDistribution : public testing_support::OpTest<std::tuple<std::string, Filters>> {};

TEST_P(SampleDistribution, AgreesWithTheAnalyticOne) {
  constexpr std::int64_t kVocab = 700;  // three blocks, the last one partial
  const Filters& filters = std::get<1>(GetParam());
  const int draws = backend() == testing_support::kEmulatedCuda ? 400 : 60000;
  std::mt19937 random(17);
  SampleBatch batch({random_logits(random, kVocab, 2.0F)});
  SampleRow row{.temperature = filters.temperature, .top_k = filters.top_k, .top_p = filters.top_p};
  row.min_p = filters.min_p;
  if (filters.penalised) {
    row.presence_penalty = 0.5F;
    row.frequency_penalty = 0.3F;
    row.repetition_penalty = 1.2F;
    row.prompt_tokens = batch.own(std::vector<std::int32_t>{1, 2, 3, 600});
    row.output_tokens = batch.own(std::vector<std::int32_t>{3, 5, 5, 699});
    row.banned_tokens = batch.own(std::vector<std::int32_t>{8, 9});
    row.bias_tokens = batch.own(std::vector<std::int32_t>{5, 10});
    row.bias_values = batch.own(std::vector<float>{2.0F, 3.0F});
  }
  for (std::uint64_t seed = 0; seed < static_cast<std::uint64_t>(draws); ++seed) {
    row.seed = seed * 7919;
    row.sequence_index = static_cast<std::uint32_t>(seed % 3);
    row.position = static_cast<std::uint32_t>(seed % 11);
    batch.add(row);
  }
  const SampleParams params = batch.params(0);
  run(params);
  const std::vector<double> probabilities = reference_distribution(params, row);
  std::vector<int> counts(kVocab, 0);
  for (const SampleOutput& out : batch.outputs()) ++counts[out.token];

  double chi_square = 0;
  double degrees = -1;
  double rest_expected = 0;  // tokens that are too rare for the test are pooled
  double rest_observed = 0;
  for (std::size_t t = 0; t < probabilities.size(); ++t) {
    const double expected = probabilities[t] * draws;
    if (probabilities[t] == 0) {
      ASSERT_EQ(counts[t], 0) << "token " << t << " was filtered out";
    } else if (expected < 5) {
      rest_expected += expected;
      rest_observed += counts[t];
    } else {
      chi_square += (counts[t] - expected) * (counts[t] - expected) / expected;
      ++degrees;
    }
  }
  if (rest_expected >= 5) {
    chi_square += (rest_observed - rest_expected) * (rest_observed - rest_expected) / rest_expected;
    ++degrees;
  }
  ASSERT_GE(degrees, 1);
  EXPECT_LT(chi_square, chi_square_quantile(degrees, 3.719)) << degrees << " degrees of freedom";
}

INSTANTIATE_TEST_SUITE_P(
    Devices, SampleDistribution,
    ::testing::Combine(
        ::testing::Values(testing_support::cpu_backends().back(), std::string(testing_support::kEmulatedCuda),
                          std::string(testing_support::kCuda)),
        ::testing::Values(Filters{"Plain", 1.0F, 0, 1.0F, 0.0F, false}, Filters{"Cold", 0.5F, 0, 1.0F, 0.0F, false},
                          Filters{"Hot", 1.8F, 0, 1.0F, 0.0F, false}, Filters{"TopK", 1.0F, 40, 1.0F, 0.0F, false},
                          Filters{"TopKLarge", 1.0F, 500, 1.0F, 0.0F, false},
                          Filters{"TopP", 1.0F, 0, 0.9F, 0.0F, false}, Filters{"MinP", 1.0F, 0, 1.0F, 0.02F, false},
                          Filters{"TopKTopP", 0.8F, 40, 0.9F, 0.0F, false},
                          Filters{"TopPMinP", 1.3F, 0, 0.8F, 0.01F, false},
                          Filters{"TopKMinP", 1.0F, 30, 1.0F, 0.05F, false},
                          Filters{"AllFilters", 0.9F, 50, 0.95F, 0.01F, false},
                          Filters{"Penalties", 1.0F, 0, 1.0F, 0.0F, true},
                          Filters{"PenaltiesAllFilters", 0.9F, 50, 0.95F, 0.01F, true})),
    [](const auto& test) { return std::get<0>(test.param) + "_" + std::get<1>(test.param).name; });

}  // namespace
}  // namespace pagoda::kernels

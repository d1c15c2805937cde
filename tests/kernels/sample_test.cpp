#include "kernels/reference/sample.hpp"

#include <algorithm>
#include <cstring>
#include <set>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "kernels/cpu/sample_passes.hpp"
#include "kernels/random.hpp"
#include "tests/kernels/op_backends.hpp"
#include "tests/kernels/sample_batch.hpp"

namespace pagoda::kernels {
namespace {

using test::kMinusInf;
using test::random_logits;
using test::SampleBatch;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing_support::OpRunner;

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

/// Expects the outputs of the reference. Where a draw differs, its uniform must lie on the border between two tokens.
void expect_same_as_reference(const OpRunner& runner, SampleBatch& batch) {
  const SampleParams params = batch.params();
  reference_sample(params);
  const auto expected = batch.outputs();
  const auto expected_tokens = batch.top_tokens();
  const auto expected_logprobs = batch.top_logprobs();

  const SampleParams again = batch.params();
  const Status status = runner(again);
  ASSERT_TRUE(status.has_value()) << status.error().message;
  std::size_t on_border = 0;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    SCOPED_TRACE("row " + std::to_string(i));
    const SampleRow& row = batch.rows()[i];
    const SampleOutput& got = batch.outputs()[i];
    ASSERT_EQ(expected[i].problem, SampleProblem::none) << "the reference refuses the row";
    ASSERT_EQ(got.problem, SampleProblem::none) << describe(got.problem);
    if (got.token != expected[i].token) {
      const auto probabilities = reference_distribution(again, row);
      const std::int32_t low = std::min(got.token, expected[i].token);
      double border = 0;
      for (std::int32_t t = 0; t <= low; ++t) border += probabilities[t];
      EXPECT_NEAR(sampling_uniform(row.seed, row.sequence_index, row.position), border, 1e-6)
          << "token " << got.token << " instead of " << expected[i].token;
      ++on_border;
      continue;
    }
    EXPECT_NEAR(got.logprob, expected[i].logprob, 2e-6 * (1 + std::abs(expected[i].logprob)));
    EXPECT_EQ(got.rank, expected[i].rank);
    EXPECT_EQ(got.num_top, expected[i].num_top);
  }
  EXPECT_LE(on_border, expected.size() / 100);
  EXPECT_EQ(batch.top_tokens(), expected_tokens);
  for (std::size_t i = 0; i < expected_logprobs.size(); ++i) {
    EXPECT_NEAR(batch.top_logprobs()[i], expected_logprobs[i], 2e-6 * (1 + std::abs(expected_logprobs[i])));
  }
}

struct Shape {
  std::int64_t vocab;
  float spread;
  float grid;
};

class SampleAgainstReference : public testing_support::OpTest<std::tuple<std::string, Shape>> {
 protected:
  const Shape& shape() const { return std::get<1>(GetParam()); }

  /// Returns n: only every n-th combination is tested, because the reference sorts everything and the emulator is slow.
  std::uint32_t stride() const {
    const bool emulated = backend() == testing_support::kEmulatedCuda;
    return (shape().vocab < 10000 ? 1 : 7) * (emulated ? 11 : 1);
  }
};

TEST_P(SampleAgainstReference, AgreesForEveryCombinationOfFilters) {
  const auto [vocab, spread, grid] = shape();
  std::mt19937 random(7);
  SampleBatch batch({random_logits(random, vocab, spread, grid), random_logits(random, vocab, spread, grid)});
  std::uint32_t position = 0;
  for (const float temperature : {0.0F, 0.3F, 1.0F, 2.5F}) {
    for (const std::int32_t top_k : {0, 1, 5, 40, 1000, 1 << 30}) {
      for (const float top_p : {1.0F, 0.999F, 0.9F, 0.5F, 1e-6F}) {
        for (const float min_p : {0.0F, 0.001F, 0.2F, 1.0F}) {
          SampleRow row{.logits_row = static_cast<std::int32_t>(position % 2), .temperature = temperature};
          row.top_k = top_k;
          row.top_p = top_p;
          row.min_p = min_p;
          row.seed = 99;
          row.position = position++;
          row.num_logprobs = static_cast<std::int32_t>(position % 7) - 1;
          if (position % stride() == 0) batch.add(row);
        }
      }
    }
  }
  expect_same_as_reference(runner_, batch);
}

TEST_P(SampleAgainstReference, AgreesForRandomPenaltiesBiasAndBans) {
  const auto [vocab, spread, grid] = shape();
  std::mt19937 random(11);
  const auto token = [&] { return static_cast<std::int32_t>(random() % vocab); };
  const auto tokens = [&](std::size_t most) {
    std::vector<std::int32_t> list(random() % (most + 1));
    std::generate(list.begin(), list.end(), token);
    return list;
  };
  SampleBatch batch({random_logits(random, vocab, spread, grid)});
  for (std::uint32_t i = 0; i < 60; ++i) {
    SampleRow row{.temperature = static_cast<float>(i % 3)};
    row.top_k = (i % 4 == 0) ? 50 : 0;
    row.top_p = (i % 5 == 0) ? 0.8F : 1.0F;
    row.seed = i;
    row.num_logprobs = 5;
    row.processed_logprobs = i % 2 == 0;
    if (i % 6 == 0) row.forced_token = token();
    row.presence_penalty = (i % 2 == 0) ? 0.0F : 1.5F;
    row.frequency_penalty = (i % 3 == 0) ? 0.0F : -0.7F;
    row.repetition_penalty = (i % 5 < 2) ? 1.0F : 1.3F;
    row.prompt_tokens = batch.own(tokens(40));
    row.output_tokens = batch.own(tokens(40));
    row.banned_tokens = vocab > 1 ? batch.own(std::vector<std::int32_t>(i % 2, token())) : std::span<std::int32_t>{};
    if (i % 4 == 3) {
      std::vector<std::uint32_t> mask(mask_words(vocab));
      for (std::uint32_t& word : mask) word = i % 8 == 3 ? static_cast<std::uint32_t>(random()) : 0;
      mask[random() % mask.size()] = ~0U;
      row.allowed_tokens = batch.own(std::move(mask));
    }
    const std::size_t biased = random() % 9;
    std::vector<std::int32_t> ids(biased);
    std::vector<float> values(biased);
    for (std::size_t b = 0; b < biased; ++b) {
      ids[b] = token();
      values[b] = static_cast<float>(random() % 200) - 100.0F;
    }
    row.bias_tokens = batch.own(ids);
    row.bias_values = batch.own(values);
    if (stride() < 77 || i % 6 == 1) batch.add(row);
  }
  expect_same_as_reference(runner_, batch);
}

constexpr Shape kShapes[] = {{1, 1, 0},     {2, 1, 0},        {17, 3, 0},       {256, 2, 0},
                             {257, 2, 0},   {1000, 0.0F, 0},  {5000, 4, 0},     {5000, 1, 0.25F},
                             {32000, 8, 0}, {32000, 0.1F, 0}, {50257, 1, 0.5F}, {151936, 3, 0}};

/// All instruction sets of a CPU sample by the same passes, which have their own tests.
std::vector<std::string> sample_backends() {
  return {testing_support::cpu_backends().back(), testing_support::kEmulatedCuda, testing_support::kCuda};
}

INSTANTIATE_TEST_SUITE_P(Devices, SampleAgainstReference,
                         ::testing::Combine(::testing::ValuesIn(sample_backends()), ::testing::ValuesIn(kShapes)),
                         [](const auto& test) {
                           const Shape& shape = std::get<1>(test.param);
                           const std::string name = std::get<0>(test.param) + "_vocab" + std::to_string(shape.vocab) +
                                                    "_spread" + std::to_string(static_cast<int>(shape.spread * 10));
                           return name + (shape.grid > 0 ? "_ties" : "");
                         });

class SampleTest : public testing_support::OpTest<std::string> {
 protected:
  void run_batch(SampleBatch& batch, std::int64_t max_top = 20) { run(batch.params(max_top)); }

  SampleOutput sample_one(const std::vector<float>& logits, SampleRow row) {
    SampleBatch batch({logits});
    batch.add(row);
    run_batch(batch);
    return batch.outputs()[0];
  }

  /// Samples one row for each position from 0 on.
  std::vector<SampleOutput> sample_positions(const std::vector<float>& logits, SampleRow row, std::uint32_t count) {
    SampleBatch batch({logits});
    for (row.position = 0; row.position < count; ++row.position) batch.add(row);
    run_batch(batch);
    return batch.outputs();
  }

  std::string error_of(const std::vector<float>& logits, SampleRow row) {
    SampleBatch batch({logits});
    batch.add(row);
    const Status status = runner_(batch.params());
    EXPECT_FALSE(status);
    return status ? "" : status.error().message;
  }

  SampleProblem problem_of(const std::vector<float>& logits, SampleRow row) { return sample_one(logits, row).problem; }

  /// Returns the number of draws; the emulator makes fewer.
  std::uint32_t many(std::uint32_t draws) const {
    return backend() == testing_support::kEmulatedCuda ? draws / 10 : draws;
  }
};

TEST_P(SampleTest, GreedyTakesTheLowestIdAmongEqualMaxima) {
  std::vector<float> logits(1000, 0.0F);
  logits[300] = logits[301] = logits[999] = 5.0F;
  EXPECT_EQ(sample_one(logits, {.temperature = 0.0F}).token, 300);
}

TEST_P(SampleTest, TopKKeepsTheLowerIdsAmongEqualLogits) {
  const std::vector<float> logits(1000, 1.0F);
  for (const SampleOutput& out : sample_positions(logits, {.top_k = 3}, many(200))) EXPECT_LT(out.token, 3);
}

TEST_P(SampleTest, ATinyTopPOrAMinPOfOneIsGreedy) {
  std::mt19937 random(3);
  const auto logits = random_logits(random, 3000, 1.0F);
  const auto best = std::max_element(logits.begin(), logits.end()) - logits.begin();
  for (const SampleOutput& out : sample_positions(logits, {.top_p = 1e-7F}, many(50))) EXPECT_EQ(out.token, best);
  for (const SampleOutput& out : sample_positions(logits, {.min_p = 1.0F}, many(50))) EXPECT_EQ(out.token, best);
}

TEST_P(SampleTest, TheSmallestTemperaturesAreGreedyAndTheLargestUniform) {
  std::mt19937 random(3);
  const auto logits = random_logits(random, 100, 1.0F);
  const auto best = std::max_element(logits.begin(), logits.end()) - logits.begin();
  for (const float temperature : {1e-30F, 1e-42F, std::numeric_limits<float>::denorm_min()}) {
    for (const SampleOutput& out : sample_positions(logits, {.temperature = temperature}, many(200))) {
      ASSERT_EQ(out.token, best);
    }
  }
  const std::uint32_t draws = many(4000);
  std::vector<std::uint32_t> counts(10, 0);
  for (const SampleOutput& out : sample_positions(logits, {.temperature = 1e30F}, draws)) ++counts[out.token / 10];
  EXPECT_GT(*std::min_element(counts.begin(), counts.end()), draws / 20);
  EXPECT_LT(*std::max_element(counts.begin(), counts.end()), draws / 5);
}

TEST_P(SampleTest, ExtremeFiniteLogitsDoNotOverflow) {
  constexpr float kMax = std::numeric_limits<float>::max();
  const std::vector<float> logits{-kMax, kMax, kMinusInf, kMax, 0.0F};
  SampleRow row{.temperature = 0.5F, .num_logprobs = 5};
  for (const SampleOutput& all : sample_positions(logits, row, 20)) {
    EXPECT_TRUE(all.token == 1 || all.token == 3);
    EXPECT_EQ(all.rank, 1);
  }
  row.top_p = 0.5F;
  for (const SampleOutput& half : sample_positions(logits, row, 20)) EXPECT_EQ(half.token, 1);
}

TEST_P(SampleTest, BannedTokensAreNeverDrawn) {
  std::vector<std::int32_t> all_but_one;
  for (std::int32_t t = 0; t < 500; ++t) {
    if (t != 123) all_but_one.push_back(t);
  }
  std::mt19937 random(5);
  const auto logits = random_logits(random, 500, 3.0F);
  for (const float temperature : {0.0F, 1.0F}) {
    for (const std::int32_t top_k : {0, 40, 400}) {
      SampleRow row{.temperature = temperature, .top_k = top_k};
      row.banned_tokens = all_but_one;
      EXPECT_EQ(sample_one(logits, row).token, 123);
    }
  }
}

TEST_P(SampleTest, ABiasOfAHundredForcesAndForbids) {
  std::mt19937 random(5);
  const auto logits = random_logits(random, 300, 3.0F);
  const std::vector<std::int32_t> ids{42};
  const std::vector<float> up{100.0F};
  const std::vector<float> down{-100.0F};
  SampleRow row{.temperature = 0.7F};
  row.bias_tokens = ids;
  row.bias_values = up;
  for (const SampleOutput& out : sample_positions(logits, row, many(300))) ASSERT_EQ(out.token, 42);
  row.bias_values = down;
  for (const SampleOutput& out : sample_positions(logits, row, many(300))) ASSERT_NE(out.token, 42);
}

TEST_P(SampleTest, OnlyAllowedTokensAreDrawnWhateverTheirBias) {
  std::vector<float> logits(70, 1.0F);
  logits[3] = 50.0F;
  const std::vector<std::uint32_t> mask{0x80000000U, 1U, 0x20U};  // tokens 31, 32 and 69
  const std::vector<std::int32_t> tokens{3, 31};
  const std::vector<float> bias{100.0F, -100.0F};
  SampleRow row;
  row.allowed_tokens = mask;
  row.bias_tokens = tokens;
  row.bias_values = bias;
  std::set<std::int32_t> drawn;
  for (const SampleOutput& out : sample_positions(logits, row, many(300))) drawn.insert(out.token);
  EXPECT_EQ(drawn, (std::set<std::int32_t>{32, 69}));
  row.temperature = 0.0F;
  row.num_logprobs = 0;
  const SampleOutput greedy = sample_one(logits, row);
  EXPECT_EQ(greedy.token, 32);
  EXPECT_EQ(greedy.rank, 2);  // rank in the model's own distribution
  const std::vector<std::uint32_t> none(3);
  row.allowed_tokens = none;
  EXPECT_EQ(problem_of(logits, row), SampleProblem::nothing_left);
  row.allowed_tokens = std::span(mask).first(2);
  EXPECT_THAT(error_of(logits, row), HasSubstr("allowed_tokens has 2 words of 3"));
}

TEST_P(SampleTest, LogprobsAreOfTheRawLogitsUnlessProcessedOnesAreAsked) {
  const std::vector<float> logits{std::log(0.5F), std::log(0.3F), std::log(0.2F)};
  const std::vector<std::int32_t> banned{0};
  SampleRow row{.temperature = 0.0F, .num_logprobs = 1};
  row.banned_tokens = banned;
  const SampleOutput raw = sample_one(logits, row);
  EXPECT_EQ(raw.token, 1);
  EXPECT_EQ(raw.rank, 2);
  EXPECT_NEAR(raw.logprob, std::log(0.3), 1e-6);
  row.processed_logprobs = true;
  const SampleOutput processed = sample_one(logits, row);
  EXPECT_EQ(processed.rank, 1);
  EXPECT_NEAR(processed.logprob, std::log(0.6), 1e-6);
}

TEST_P(SampleTest, AForcedTokenIsReportedAndNotDrawn) {
  const SampleOutput out = sample_one({3.0F, 1.0F, 2.0F}, {.num_logprobs = 0, .forced_token = 1});
  EXPECT_EQ(out.token, 1);
  EXPECT_EQ(out.rank, 3);
  EXPECT_EQ(out.num_top, 0);
}

TEST_P(SampleTest, TopLogprobsAreBestFirstAndAtMostTheVocabulary) {
  SampleBatch batch({{1.0F, 3.0F, 2.0F, 3.0F}});
  batch.add({.temperature = 0.0F, .num_logprobs = 20});
  run_batch(batch);
  EXPECT_EQ(batch.outputs()[0].num_top, 4);
  EXPECT_EQ(batch.outputs()[0].rank, 1);
  const auto& top = batch.top_tokens();
  EXPECT_THAT(std::vector<std::int32_t>(top.begin(), top.begin() + 4), ElementsAre(1, 3, 2, 0));
}

TEST_P(SampleTest, ARowWithNanOrInfinityIsToldAndTheOthersAreSampled) {
  for (const float bad : {kNan, -kNan, kInf}) {
    for (const std::size_t at : {0U, 255U, 256U, 300U}) {
      std::vector<float> broken(301, 1.0F);
      broken[at] = bad;
      std::vector<float> good(301, 1.0F);
      good[17] = 9.0F;
      SampleBatch batch({good, broken});
      for (const std::int32_t row : {0, 1, 0}) {
        batch.add({.logits_row = row, .temperature = 0.0F, .num_logprobs = 3});
      }
      run_batch(batch);
      EXPECT_EQ(batch.outputs()[0].token, 17);
      EXPECT_EQ(batch.outputs()[1].token, -1);
      EXPECT_EQ(batch.outputs()[1].problem, SampleProblem::not_finite);
      EXPECT_EQ(batch.outputs()[2].token, 17);
    }
  }
}

TEST_P(SampleTest, ARowWithNothingLeftIsTold) {
  EXPECT_EQ(problem_of({kMinusInf, kMinusInf}, {}), SampleProblem::nothing_left);
  const std::vector<std::int32_t> all{0, 1};
  SampleRow row{.temperature = 0.0F};
  row.banned_tokens = all;
  EXPECT_EQ(problem_of({1.0F, 2.0F}, row), SampleProblem::nothing_left);
}

TEST_P(SampleTest, IdsOutOfRangeAreToldAndShapesOutOfRangeAreErrorsThatNameTheRow) {
  const std::vector<float> logits{1.0F, 2.0F};
  const std::vector<std::int32_t> outside{2};
  const std::vector<std::int32_t> negative{-1};
  const std::vector<float> bias{1.0F};
  SampleRow row;
  row.banned_tokens = outside;
  EXPECT_EQ(problem_of(logits, row), SampleProblem::token_out_of_range);
  row = {};
  row.bias_tokens = negative;
  EXPECT_THAT(error_of(logits, row), HasSubstr("row 0: bias_tokens and bias_values differ in size"));
  row.bias_values = bias;
  EXPECT_EQ(problem_of(logits, row), SampleProblem::token_out_of_range);
  row = {.presence_penalty = 1.0F};
  row.output_tokens = outside;
  EXPECT_EQ(problem_of(logits, row), SampleProblem::token_out_of_range);
  EXPECT_EQ(problem_of(logits, {.forced_token = 2}), SampleProblem::token_out_of_range);
  EXPECT_THAT(error_of(logits, {.logits_row = 1}), HasSubstr("logits_row is 1 of 1"));
  EXPECT_THAT(error_of(logits, {.num_logprobs = 21}), HasSubstr("max_top"));
  EXPECT_THAT(error_of(logits, {.temperature = kNan}), HasSubstr("out of range"));
}

TEST_P(SampleTest, ARowDoesNotDependOnItsBatchOrTheThreads) {
  std::mt19937 random(21);
  const auto shared = random_logits(random, 4000, 2.0F);
  std::vector<SampleRow> rows;
  for (std::uint32_t i = 0; i < 12; ++i) {
    SampleRow row{.temperature = 0.8F + 0.1F * static_cast<float>(i % 4)};
    row.top_k = (i % 3 == 0) ? 30 : 0;
    row.top_p = (i % 2 == 0) ? 0.9F : 1.0F;
    row.seed = i;
    row.num_logprobs = 4;
    rows.push_back(row);
  }
  const auto sample = [&](std::vector<SampleRow> chosen, int threads) {
    SampleBatch batch({shared});
    for (const SampleRow& row : chosen) batch.add(row);
    EXPECT_TRUE(OpRunner(backend(), threads)(batch.params()));
    return std::pair(batch.outputs(), batch.top_logprobs());
  };
  const auto together = sample(rows, 1);
  const auto parallel = sample(rows, 4);
  EXPECT_EQ(together.second, parallel.second);
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const auto alone = sample({rows[i]}, 1);
    EXPECT_EQ(alone.first[0].token, together.first[i].token);
    EXPECT_EQ(alone.first[0].logprob, together.first[i].logprob);
    EXPECT_EQ(parallel.first[i].token, together.first[i].token);
  }
}

TEST_P(SampleTest, ListsAndCutsAreExactAmongThousandsOfEqualLogits) {
  // The cut lies among more ties than can be kept; other logits lie above and below the ties.
  std::vector<float> logits(20000, 1.0F);
  logits[19999] = 2.0F;
  logits[7] = -0.0F;
  logits[8] = 0.0F;
  SampleBatch batch({logits});
  batch.add({.temperature = 0.0F, .num_logprobs = 3});
  for (const std::int32_t top_k : {3, 700, 9000, 19999}) batch.add({.top_k = top_k, .num_logprobs = 20});
  for (const float top_p : {0.2F, 0.7F, 0.99F}) batch.add({.top_p = top_p, .min_p = 0.1F});
  expect_same_as_reference(runner_, batch);
  EXPECT_THAT(std::vector<std::int32_t>(batch.top_tokens().begin(), batch.top_tokens().begin() + 3),
              ElementsAre(19999, 0, 1));
}

TEST_P(SampleTest, ListsOfAThousandTokensAreInOrder) {
  std::mt19937 random(31);
  std::vector<float> logits = random_logits(random, 30000, 2.0F, 0.01F);
  logits[5] = kMinusInf;
  SampleBatch batch({logits, random_logits(random, 30000, 0.0F)});
  for (const std::int32_t row : {0, 1}) batch.add({.logits_row = row, .temperature = 0.0F, .num_logprobs = 1500});
  reference_sample(batch.params(1500));
  const std::vector<std::int32_t> expected = batch.top_tokens();
  run_batch(batch, 1500);
  EXPECT_EQ(batch.top_tokens(), expected);
}

/// More tokens are listed than the CUDA backend keeps as candidates, so a second kernel lists them.
TEST_P(SampleTest, LogprobsAreListedForAForcedTokenThatIsImpossible) {
  constexpr std::int32_t kVocab = 9000;
  constexpr std::int32_t kForced = 17;
  std::mt19937 random(37);
  std::vector<float> logits = random_logits(random, kVocab, 2.0F);
  logits[kForced] = kMinusInf;
  SampleBatch batch({logits});
  batch.add({.num_logprobs = kVocab, .forced_token = kForced});
  batch.add({.num_logprobs = kVocab, .forced_token = kForced + 1});
  reference_sample(batch.params(kVocab));
  const std::vector<std::int32_t> expected_tokens = batch.top_tokens();
  const std::vector<float> expected = batch.top_logprobs();
  run_batch(batch, kVocab);
  EXPECT_EQ(batch.outputs()[0].token, kForced);
  EXPECT_EQ(batch.outputs()[0].logprob, kMinusInf);
  EXPECT_EQ(batch.outputs()[0].rank, kVocab);
  EXPECT_EQ(batch.top_tokens(), expected_tokens);
  for (std::size_t i = 0; i < expected.size(); ++i) {
    if (std::isinf(expected[i])) {
      EXPECT_EQ(batch.top_logprobs()[i], expected[i]) << i;
    } else {
      EXPECT_NEAR(batch.top_logprobs()[i], expected[i], 2e-6 * (1 + std::abs(expected[i]))) << i;
    }
  }
}

TEST_P(SampleTest, ManyRowsWithPenaltiesTakeTurnsInTheirMemory) {
  // The changed logits of the rows need more memory than a device reserves for a step.
  constexpr std::int64_t kVocab = 151936;
  std::mt19937 random(5);
  SampleBatch batch({random_logits(random, kVocab, 1.0F)});
  const auto best = [&](std::int32_t skipped) {
    SampleRow row{.temperature = 0.0F, .processed_logprobs = true};
    std::vector<std::int32_t> output(3, skipped);
    row.output_tokens = batch.own(output);
    row.frequency_penalty = 30.0F;
    return row;
  };
  for (std::int32_t i = 0; i < 60; ++i) {
    if (i % 4 == 0) batch.add({.temperature = 0.0F});
    batch.add(best(i * 1000));
  }
  reference_sample(batch.params(0));
  const auto outputs = batch.outputs();
  run_batch(batch, 0);
  for (std::size_t i = 0; i < outputs.size(); ++i) EXPECT_EQ(batch.outputs()[i].token, outputs[i].token) << i;
}

INSTANTIATE_TEST_SUITE_P(Devices, SampleTest, ::testing::ValuesIn(sample_backends()),
                         [](const auto& test) { return test.param; });

TEST(SamplePasses, GiveTheSameBitsOnEveryInstructionSet) {
  std::mt19937 random(13);
  for (const std::int64_t vocab : {1, 15, 16, 255, 257, 5000}) {
    auto logits = random_logits(random, vocab, 20.0F);
    if (vocab > 20) logits[7] = kMinusInf;
    const WeightScale scale{*std::max_element(logits.begin(), logits.end()), 1.7F};
    const auto run = [&](const SamplePasses& passes) {
      std::vector<float> maxima(sample_blocks(vocab));
      std::vector<float> weights(vocab);
      std::vector<double> sums(maxima.size());
      EXPECT_TRUE(passes.block_maxima(logits.data(), vocab, maxima.data()));
      passes.block_weight_sums(logits.data(), vocab, scale, sums.data());
      passes.weights(logits.data(), vocab, scale, weights.data());
      return std::tuple(maxima, sums, weights, passes.count_greater(logits.data(), vocab, 0.5F));
    };
    const auto portable = run(*available_sample_passes()[0]);
    for (const SamplePasses* passes : available_sample_passes()) EXPECT_EQ(run(*passes), portable) << passes->name;
  }
}

TEST(SamplePasses, WeightsAreExponentialsToAFewUnitsInTheLastPlace) {
  std::vector<float> logits;
  for (float x = -87.0F; x <= 0.0F; x += 0.00037F) logits.push_back(x);
  logits.push_back(0.0F);
  logits.push_back(-87.5F);
  logits.push_back(-1e30F);
  std::vector<float> weights(logits.size());
  sample_passes().weights(logits.data(), static_cast<std::int64_t>(logits.size()), {0.0F, 1.0F}, weights.data());
  for (std::size_t i = 0; i < logits.size(); ++i) {
    const double exact = logits[i] < -87.0F ? 0.0 : std::exp(static_cast<double>(logits[i]));
    ASSERT_NEAR(weights[i], exact, 2e-7 * exact) << logits[i];
  }
  EXPECT_EQ(weights[logits.size() - 3], 1.0F);
}

}  // namespace
}  // namespace pagoda::kernels

// Tests bad words, requested tokens' log-probabilities, and lists as long as the vocabulary: against the reference and
// by hand, on every backend.

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "kernels/reference/sample.hpp"
#include "tests/kernels/op_backends.hpp"
#include "tests/kernels/sample_batch.hpp"

namespace pagoda::kernels {
namespace {

using test::kMinusInf;
using test::random_logits;
using test::SampleBatch;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class SampleWords : public testing_support::OpTest<std::string> {
 protected:
  SampleOutput sample_one(const std::vector<float>& logits, const SampleRow& row) {
    SampleBatch batch({logits});
    batch.add(row);
    run(batch.params());
    return batch.outputs()[0];
  }
};

/// Owns the lists of a row with bad words.
struct Words {
  std::vector<std::int32_t> tokens;
  std::vector<std::int32_t> ends;

  Words(std::initializer_list<std::vector<std::int32_t>> words) {
    for (const auto& word : words) {
      tokens.insert(tokens.end(), word.begin(), word.end());
      ends.push_back(static_cast<std::int32_t>(tokens.size()));
    }
  }
  SampleRow row(std::span<const std::int32_t> last_tokens) const {
    SampleRow row{.temperature = 0.0F};
    row.bad_word_tokens = tokens;
    row.bad_word_ends = ends;
    row.last_tokens = last_tokens;
    return row;
  }
};

TEST_P(SampleWords, TheLastTokenOfABadWordIsBannedBehindItsOthersAlone) {
  const std::vector<float> logits{0, 1, 2, 3, 4, 5};
  const Words words{{5}, {1, 2, 4}, {3, 3}};
  const auto token_behind = [&](std::vector<std::int32_t> last) { return sample_one(logits, words.row(last)).token; };
  EXPECT_EQ(token_behind({}), 4) << "a word of one token is banned everywhere";
  EXPECT_EQ(token_behind({2}), 4);
  EXPECT_EQ(token_behind({1, 2}), 3);
  EXPECT_EQ(token_behind({0, 1, 2}), 3);
  EXPECT_EQ(token_behind({2, 1}), 4);
  EXPECT_EQ(token_behind({1, 2, 0}), 4);
  EXPECT_EQ(token_behind({3}), 4);
  const Words both{{5}, {1, 2, 4}, {2, 3}};
  const std::vector<std::int32_t> last{1, 2};
  EXPECT_EQ(sample_one(logits, both.row(last)).token, 2) << "two words end here";
}

TEST_P(SampleWords, AreToldWhenTheyAreOutOfRangeOrHaveNoEnds) {
  const std::vector<float> logits{0, 1, 2};
  EXPECT_EQ(sample_one(logits, Words{{7}}.row({})).problem, SampleProblem::token_out_of_range);
  EXPECT_EQ(sample_one(logits, Words{{0}, {1}, {2}}.row({})).problem, SampleProblem::nothing_left);
  for (const std::vector<std::int32_t>& ends : {std::vector<std::int32_t>{1}, {2, 2}, {2, 1}, {1, 3}, {0, 2}}) {
    const Words words{{0, 1}};
    SampleRow row = words.row({});
    row.bad_word_ends = ends;
    SampleBatch batch({logits});
    batch.add(row);
    const Status status = runner_(batch.params());
    ASSERT_FALSE(status);
    EXPECT_THAT(status.error().message, HasSubstr("bad_word_ends"));
  }
}

TEST_P(SampleWords, RandomWordsAgreeWithTheReference) {
  std::mt19937 random(5);
  constexpr std::int64_t kVocab = 40;
  std::vector<std::vector<float>> logits;
  for (int i = 0; i < 60; ++i) logits.push_back(random_logits(random, kVocab, 2.0F));
  SampleBatch batch(logits);
  const auto tokens = [&](std::size_t count) {
    std::vector<std::int32_t> list(count);
    // Few token ids make many words match.
    for (auto& token : list) token = static_cast<std::int32_t>(random() % 3);
    return list;
  };
  for (std::int32_t i = 0; i < 60; ++i) {
    std::vector<std::int32_t> words;
    std::vector<std::int32_t> ends;
    for (std::size_t w = 0; w < 8; ++w) {
      auto word = tokens(random() % 4);
      word.push_back(static_cast<std::int32_t>(random() % kVocab));
      words.insert(words.end(), word.begin(), word.end());
      ends.push_back(static_cast<std::int32_t>(words.size()));
    }
    SampleRow row{.logits_row = i, .temperature = 0.0F};
    row.bad_word_tokens = batch.own(words);
    row.bad_word_ends = batch.own(ends);
    row.last_tokens = batch.own(tokens(random() % 5));
    row.num_logprobs = 3;
    row.processed_logprobs = i % 2 == 0;
    batch.add(row);
  }
  reference_sample(batch.params());
  const auto expected = batch.outputs();
  const auto expected_top = batch.top_tokens();
  run(batch.params());
  for (std::size_t i = 0; i < expected.size(); ++i) EXPECT_EQ(batch.outputs()[i].token, expected[i].token) << i;
  EXPECT_EQ(batch.top_tokens(), expected_top);
}

TEST_P(SampleWords, LogprobsAreOfTheTokensThatAreAskedForInTheirOrder) {
  const std::vector<float> logits{std::log(0.5F), std::log(0.3F), std::log(0.2F)};
  const std::vector<std::int32_t> asked{2, 0};
  SampleBatch batch({logits});
  SampleRow row{.temperature = 0.0F, .num_logprobs = 2};
  row.logprob_tokens = asked;
  batch.add(row);
  row.forced_token = 1;
  batch.add(row);
  run(batch.params());
  for (const std::size_t i : {0U, 1U}) {
    EXPECT_EQ(batch.outputs()[i].num_top, 2);
    EXPECT_EQ(batch.top_tokens()[i * 20], 2);
    EXPECT_EQ(batch.top_tokens()[i * 20 + 1], 0);
    EXPECT_NEAR(batch.top_logprobs()[i * 20], std::log(0.2), 1e-6);
    EXPECT_NEAR(batch.top_logprobs()[i * 20 + 1], std::log(0.5), 1e-6);
  }
  EXPECT_NEAR(batch.outputs()[0].logprob, std::log(0.5), 1e-6);
  EXPECT_NEAR(batch.outputs()[1].logprob, std::log(0.3), 1e-6);
  const std::vector<std::int32_t> unknown{0, 3};
  row.logprob_tokens = unknown;
  EXPECT_EQ(sample_one(logits, row).problem, SampleProblem::token_out_of_range);
  row.num_logprobs = 1;
  SampleBatch odd({logits});
  odd.add(row);
  EXPECT_THAT(runner_(odd.params()).error().message, HasSubstr("logprob_tokens has 2"));
}

TEST_P(SampleWords, AListHasTheWholeVocabularyInOrder) {
  constexpr std::int64_t kVocab = 8500;  // more tokens than a thread block of a GPU keeps
  std::mt19937 random(9);
  std::vector<float> logits = random_logits(random, kVocab, 3.0F, 0.25F);  // the grid makes ties
  logits[17] = kMinusInf;
  const std::vector<std::int32_t> banned{3, 4};
  SampleBatch batch({logits});
  batch.add({.temperature = 0.0F, .num_logprobs = static_cast<std::int32_t>(kVocab)});
  SampleRow processed{.temperature = 0.0F, .num_logprobs = static_cast<std::int32_t>(kVocab - 5)};
  processed.banned_tokens = banned;
  processed.processed_logprobs = true;
  batch.add(processed);
  batch.add({.temperature = 0.0F, .num_logprobs = 2});
  reference_sample(batch.params(kVocab));
  const auto expected = batch.top_tokens();
  const auto expected_logprobs = batch.top_logprobs();
  run(batch.params(kVocab));
  EXPECT_EQ(batch.top_tokens(), expected);
  for (std::size_t i = 0; i < expected_logprobs.size(); ++i) {
    if (expected_logprobs[i] == kMinusInf) {
      ASSERT_EQ(batch.top_logprobs()[i], kMinusInf);
    } else {
      ASSERT_NEAR(batch.top_logprobs()[i], expected_logprobs[i], 3e-6 * (1 + std::abs(expected_logprobs[i])));
    }
  }
  double total = 0;
  for (std::int64_t i = 0; i < kVocab; ++i) total += std::exp(static_cast<double>(batch.top_logprobs()[i]));
  EXPECT_NEAR(total, 1.0, 1e-4);
}

INSTANTIATE_TEST_SUITE_P(Devices, SampleWords,
                         ::testing::Values(testing_support::cpu_backends().back(), testing_support::kEmulatedCuda,
                                           testing_support::kCuda),
                         [](const auto& test) { return test.param; });

}  // namespace
}  // namespace pagoda::kernels

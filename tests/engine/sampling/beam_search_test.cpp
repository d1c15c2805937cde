#include "engine/sampling/beam_search.hpp"

#include <algorithm>
#include <cmath>
#include <fstream>
#include <limits>
#include <random>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

namespace pagoda {
namespace {

using nlohmann::json;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr TokenId kEos = 0;

BeamSearch search_of(std::int64_t width, std::int64_t max_tokens, EarlyStopping early = EarlyStopping::no,
                     double length_penalty = 1.0) {
  return BeamSearch({.width = width,
                     .max_new_tokens = max_tokens,
                     .length_penalty = length_penalty,
                     .early_stopping = early,
                     .ending_tokens = {kEos}});
}

TEST(BeamSearch, StartsFromThePromptAlone) {
  const BeamSearch search = search_of(3, 5);
  ASSERT_EQ(search.running().size(), 1U);
  EXPECT_EQ(search.running()[0].node, -1);
  EXPECT_FALSE(search.done());
  EXPECT_THAT(search.hypotheses(), IsEmpty());
}

TEST(BeamSearch, KeepsTheBestContinuationsOverAllBeamsAndTheirParents) {
  BeamSearch search = search_of(2, 5);
  search.step(std::vector<BeamCandidate>{{0, 5, -1.0F}, {0, 6, -0.5F}, {0, 7, -2.0F}});
  ASSERT_EQ(search.running().size(), 2U);
  EXPECT_EQ(search.running()[0].token, 6);
  EXPECT_EQ(search.running()[1].token, 5);

  search.step(std::vector<BeamCandidate>{{0, 8, -3.0F}, {0, 9, -4.0F}, {1, 8, -0.1F}, {1, 9, -0.2F}});
  ASSERT_EQ(search.running().size(), 2U);
  EXPECT_EQ(search.running()[0].parent, 1);
  EXPECT_EQ(search.running()[1].parent, 1);
  EXPECT_THAT(search.tokens(search.running()[0].node), ElementsAre(5, 8));
  EXPECT_THAT(search.tokens(search.running()[1].node), ElementsAre(5, 9));
  EXPECT_NEAR(search.running()[0].cumulative_logprob, -1.1, 1e-6);
}

TEST(BeamSearch, EqualContinuationsGoByBeamThenToken) {
  BeamSearch search = search_of(2, 5);
  search.step(std::vector<BeamCandidate>{{0, 9, -1.0F}, {0, 7, -1.0F}, {0, 8, -1.0F}});
  EXPECT_EQ(search.running()[0].token, 7);
  EXPECT_EQ(search.running()[1].token, 8);
}

TEST(BeamSearch, AnEndCountsOnlyAmongTheBestWidth) {
  BeamSearch search = search_of(2, 5);
  search.step(std::vector<BeamCandidate>{{0, 5, -1.0F}, {0, 6, -1.5F}, {0, kEos, -2.0F}, {0, 7, -9.0F}});
  EXPECT_THAT(search.hypotheses(), IsEmpty()) << "eos is third of two";
  search.step(std::vector<BeamCandidate>{{0, kEos, -0.1F}, {0, 5, -2.0F}, {1, 5, -2.0F}, {1, 6, -3.0F}});
  ASSERT_EQ(search.hypotheses().size(), 1U);
  EXPECT_EQ(search.hypotheses()[0].finish_reason, FinishReason::stop);
  EXPECT_EQ(search.hypotheses()[0].length, 2);
  EXPECT_NEAR(search.hypotheses()[0].score, -1.1 / 2, 1e-6);
  EXPECT_EQ(search.running().size(), 2U) << "an end frees no place";
}

TEST(BeamSearch, AtTheLengthLimitTheRunningBeamsBecomeHypotheses) {
  BeamSearch search = search_of(2, 1);
  search.step(std::vector<BeamCandidate>{{0, 5, -1.0F}, {0, kEos, -2.0F}, {0, 7, -3.0F}});
  EXPECT_TRUE(search.done());
  ASSERT_EQ(search.hypotheses().size(), 2U);
  EXPECT_EQ(search.hypotheses()[0].finish_reason, FinishReason::length);
  EXPECT_EQ(search.hypotheses()[1].finish_reason, FinishReason::stop);
}

TEST(BeamSearch, EarlyStoppingYesEndsWithTheFirstFullListAndNeverGoesOn) {
  const auto run = [&](EarlyStopping early) {
    BeamSearch search = search_of(1, 50, early, 2.0);
    search.step(std::vector<BeamCandidate>{{0, 5, -2.0F}, {0, 6, -3.0F}});
    search.step(std::vector<BeamCandidate>{{0, kEos, -0.1F}, {0, 5, -0.6F}});
    return search.done();
  };
  EXPECT_TRUE(run(EarlyStopping::yes));
  EXPECT_TRUE(run(EarlyStopping::no)) << "-2.6 at the present length loses";
  EXPECT_FALSE(run(EarlyStopping::never)) << "-2.6 / 50^2 may still win";
}

TEST(BeamSearch, ImpossibleTokensAreNeverTaken) {
  BeamSearch search = search_of(2, 5);
  constexpr float kImpossible = -std::numeric_limits<float>::infinity();
  search.step(std::vector<BeamCandidate>{{0, kEos, kImpossible}, {0, 5, -1.0F}, {0, 6, kImpossible}});
  ASSERT_EQ(search.running().size(), 1U);
  EXPECT_EQ(search.running()[0].token, 5);
  search.step(std::vector<BeamCandidate>{{0, 6, kImpossible}});
  EXPECT_TRUE(search.done()) << "nothing can go on";
}

/// Returns the unbounded ranking: all continuations, as transformers sorts them.
std::vector<std::pair<std::int32_t, TokenId>> best_that_go_on(std::vector<BeamCandidate> all, const BeamSearch& search,
                                                              const BeamSearchParams& params) {
  const auto total = [&](const BeamCandidate& c) {
    return search.running()[static_cast<std::size_t>(c.beam)].cumulative_logprob + static_cast<double>(c.logprob);
  };
  std::ranges::stable_sort(all, [&](const auto& a, const auto& b) { return total(a) > total(b); });
  std::vector<std::pair<std::int32_t, TokenId>> best;
  for (const BeamCandidate& c : all) {
    const bool ends = std::ranges::find(params.ending_tokens, c.token) != params.ending_tokens.end();
    if (!ends && static_cast<std::int64_t>(best.size()) < params.width) best.emplace_back(c.beam, c.token);
  }
  return best;
}

TEST(BeamSearch, NeedsNoMoreCandidatesThanItAsksForWhateverEnds) {
  constexpr TokenId kVocab = 50;
  std::mt19937 random(3);
  for (int trial = 0; trial < 300; ++trial) {
    BeamSearchParams params;
    params.width = 1 + trial % 7;
    params.max_new_tokens = 6;
    for (TokenId token = 0; token < kVocab; ++token) {
      if (random() % 100 < static_cast<unsigned>(trial % 100)) params.ending_tokens.push_back(token);
    }
    BeamSearch whole(params);
    BeamSearch bounded(params);
    const auto asked = static_cast<std::size_t>(beam_candidates(params.width, params.ending_tokens.size()));
    while (!whole.done()) {
      std::vector<BeamCandidate> all;
      std::vector<BeamCandidate> likeliest;
      for (std::size_t beam = 0; beam < whole.running().size(); ++beam) {
        std::vector<BeamCandidate> of_beam;
        for (TokenId token = 0; token < kVocab; ++token) {
          of_beam.push_back(
              {static_cast<std::int32_t>(beam), token, -static_cast<float>(random() % 100000) / 10000.0F});
        }
        all.insert(all.end(), of_beam.begin(), of_beam.end());
        std::ranges::stable_sort(of_beam, std::ranges::greater{}, &BeamCandidate::logprob);
        of_beam.resize(std::min(of_beam.size(), asked));
        likeliest.insert(likeliest.end(), of_beam.begin(), of_beam.end());
      }
      const auto expected = best_that_go_on(all, whole, params);
      whole.step(all);
      bounded.step(likeliest);
      ASSERT_EQ(whole.running().size(), bounded.running().size());
      for (std::size_t i = 0; i < whole.running().size(); ++i) {
        ASSERT_EQ(whole.running()[i].token, bounded.running()[i].token);
        ASSERT_EQ(whole.running()[i].parent, bounded.running()[i].parent);
        if (!whole.done()) {
          ASSERT_EQ(std::pair(whole.running()[i].parent, whole.running()[i].token), expected[i]);
        }
      }
    }
    ASSERT_EQ(whole.hypotheses().size(), bounded.hypotheses().size());
    for (std::size_t i = 0; i < whole.hypotheses().size(); ++i) {
      EXPECT_EQ(whole.tokens(whole.hypotheses()[i].node), bounded.tokens(bounded.hypotheses()[i].node));
      EXPECT_EQ(whole.hypotheses()[i].score, bounded.hypotheses()[i].score);
    }
  }
}

/// Returns log-probabilities after the last two tokens, as in the toy model of tools/make_beam_goldens.py.
class TableModel {
 public:
  explicit TableModel(const json& golden) : rows_(golden["rows"]), vocab_(golden["vocab"]) {
    const auto logits = golden["logits"].get<std::vector<double>>();
    for (std::int64_t row = 0; row < rows_; ++row) {
      double total = 0;
      for (std::int64_t t = 0; t < vocab_; ++t) total += std::exp(logits[row * vocab_ + t]);
      for (std::int64_t t = 0; t < vocab_; ++t) logprobs_.push_back(logits[row * vocab_ + t] - std::log(total));
    }
  }

  void add_candidates(const TokenIds& tokens, std::int32_t beam, std::vector<BeamCandidate>& out) const {
    const TokenId last = tokens.back();
    const TokenId before = tokens.size() > 1 ? tokens[tokens.size() - 2] : last;
    const std::int64_t row = (before * 31 + last) % rows_;
    for (TokenId t = 0; t < vocab_; ++t) out.push_back({beam, t, static_cast<float>(logprobs_[row * vocab_ + t])});
  }

 private:
  std::int64_t rows_;
  std::int64_t vocab_;
  std::vector<double> logprobs_;
};

TEST(BeamSearch, GivesTransformersTokensAndScores) {
  std::ifstream file(PAGODA_SOURCE_DIR "/tests/data/sampling/beam_search.json");
  const json golden = json::parse(file);
  const TableModel model(golden);
  ASSERT_GT(golden["cases"].size(), 200U);
  for (const json& test_case : golden["cases"]) {
    const std::string early = test_case["early_stopping"];
    BeamSearch search({.width = test_case["width"],
                       .max_new_tokens = test_case["max_tokens"],
                       .length_penalty = test_case["length_penalty"],
                       .early_stopping = early == "yes"     ? EarlyStopping::yes
                                         : early == "never" ? EarlyStopping::never
                                                            : EarlyStopping::no,
                       .ending_tokens = test_case["ending_tokens"].get<TokenIds>()});
    const auto prompt = golden["prompts"][test_case["prompt"].get<std::size_t>()].get<TokenIds>();
    while (!search.done()) {
      std::vector<BeamCandidate> candidates;
      for (std::size_t beam = 0; beam < search.running().size(); ++beam) {
        TokenIds tokens = prompt;
        const TokenIds generated = search.tokens(search.running()[beam].node);
        tokens.insert(tokens.end(), generated.begin(), generated.end());
        model.add_candidates(tokens, static_cast<std::int32_t>(beam), candidates);
      }
      search.step(candidates);
    }
    ASSERT_EQ(search.hypotheses().size(), test_case["outputs"].size()) << test_case;
    for (std::size_t i = 0; i < search.hypotheses().size(); ++i) {
      const BeamHypothesis& hypothesis = search.hypotheses()[i];
      ASSERT_EQ(search.tokens(hypothesis.node), test_case["outputs"][i]["tokens"].get<TokenIds>()) << test_case;
      ASSERT_NEAR(hypothesis.score, test_case["outputs"][i]["score"].get<double>(),
                  1e-4 * (1 + std::abs(hypothesis.score)))
          << test_case;
    }
  }
}

}  // namespace
}  // namespace pagoda

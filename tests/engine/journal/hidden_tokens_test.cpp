#include "engine/journal/hidden_tokens.hpp"

#include <algorithm>
#include <memory>
#include <random>
#include <set>
#include <vector>

#include <gtest/gtest.h>

#include "engine/journal/recorded_scheduler.hpp"
#include "tests/support/memory_journal.hpp"

namespace pagoda::journal {
namespace {

TEST(HiddenTokens, ABlankRequestHasNothingOfWhatWasSaid) {
  RequestSpec spec;
  spec.prompt = std::make_shared<const TokenIds>(TokenIds{7, 8, 9});
  spec.cache_salt = "salt";
  spec.sampling.stop = {"stop"};
  spec.sampling.logit_bias = {{5, 1.0}};
  spec.sampling.structured_outputs = {GrammarKind::choice, "a", {"b"}};
  spec.sampling.max_tokens = 12;
  const SharedSpec hidden = blank(spec);
  EXPECT_EQ(*hidden->prompt, (TokenIds{0, 0, 0}));
  EXPECT_EQ(hidden->cache_salt, "");
  EXPECT_TRUE(hidden->sampling.stop.empty());
  EXPECT_TRUE(hidden->sampling.logit_bias.empty());
  EXPECT_EQ(hidden->sampling.structured_outputs, StructuredOutput{});
  EXPECT_EQ(hidden->sampling.max_tokens, 12);
}

TEST(HiddenTokens, ABlankRequestHasMasksWhereItsThinkingEndsBehindABudget) {
  RequestSpec spec;
  spec.prompt = std::make_shared<const TokenIds>(TokenIds{7, 8, 9});
  EXPECT_FALSE(blank(spec)->sampling.structured_outputs);
  spec.sampling.thinking_token_budget = 12;
  const SharedSpec hidden = blank(spec);
  EXPECT_FALSE(hidden->sampling.thinking_token_budget);
  EXPECT_TRUE(hidden->sampling.structured_outputs);
}

TEST(HiddenTokens, OnlyWhatEndsASequenceOfTheRequestStays) {
  RequestSpec spec;
  spec.sampling.stop_token_ids = {500};
  const TokenIds eos{2};
  for (const auto& [token, hidden] : std::vector<std::pair<TokenId, TokenId>>{
           {2, 2}, {500, 500}, {1, 0}, {3, 3}, {499, 3}, {501, 501}, {90'000, 501}}) {
    TokenReport report{token, -0.5F, 3, {{token, -0.5F}}};
    blank(report, spec, eos);
    EXPECT_EQ(report.token, hidden) << token;
    EXPECT_EQ(report.logprob, 0);
    EXPECT_EQ(report.rank, 0);
    EXPECT_TRUE(report.top.empty());
  }
  spec.sampling.ignore_eos = true;
  TokenReport report{2, 0, 1, {}};
  blank(report, spec, eos);
  EXPECT_EQ(report.token, 0);
}

TEST(HiddenTokens, CandidatesOfABeamKeepTheirOrderAndLikeliness) {
  RequestSpec spec;
  spec.sampling.use_beam_search = true;
  TokenReport report{40, -1, 1, {{40, -1.0F}, {7, -1.0F}, {2, -2.0F}, {99, -3.0F}}};
  blank(report, spec, TokenIds{2, 50});
  ASSERT_EQ(report.top.size(), 4U);
  EXPECT_EQ(report.top[0].first, report.token);
  EXPECT_LT(report.top[1].first, report.top[0].first);
  EXPECT_EQ(report.top[2].first, 2);
  EXPECT_GT(report.top[3].first, 50);
  EXPECT_EQ(report.top[3].second, -3.0F);
}

TEST(HiddenTokens, SegmentsBeginForOtherCoresAfterACopyHasDiverged) {
  const auto journal = std::make_shared<test::MemoryJournal>(1, /*keeps_tokens=*/false);
  Recorder recorder(journal, Source::scheduler, [](Encoder&) {});
  recorder.input(SchedulerInput::take_outputs);
  recorder.stop_diverged();
  EXPECT_FALSE(recorder.is_on());
  recorder.begin_segment_if_full();
  recorder.input(SchedulerInput::take_outputs);
  recorder.effect(std::uint64_t{1});
  EXPECT_EQ(journal->segments().size(), 2U);
  EXPECT_TRUE(journal->segments().back().empty());
}

TEST(HiddenTokens, HashesOfAPositionAreEqualWhereTokensAreAndNowhereElse) {
  const HashedTokens hashed({11, 12});
  std::size_t num_fixed = 0;
  for (const std::int32_t position : {0, 1, 70'000}) {
    std::set<TokenId> seen;
    for (TokenId token = 0; token < 200'000; ++token) {
      const TokenId hash = hashed.hash(position, token);
      EXPECT_TRUE(seen.insert(hash).second);
      num_fixed += hash == token ? 1 : 0;
    }
  }
  EXPECT_LT(num_fixed, 10U);
  // Hashes of another position or another key are unrelated.
  std::size_t num_equal = 0;
  for (TokenId token = 0; token < 10'000; ++token) {
    num_equal += hashed.hash(1, token) == hashed.hash(2, token) ? 1 : 0;
    num_equal += hashed.hash(1, token) == HashedTokens({11, 13}).hash(1, token) ? 1 : 0;
  }
  EXPECT_LT(num_equal, 5U);
}

}  // namespace
}  // namespace pagoda::journal

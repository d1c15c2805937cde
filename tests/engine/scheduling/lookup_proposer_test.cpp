// Tests drafts from the text of a sequence.

#include "engine/scheduling/lookup_proposer.hpp"

#include <algorithm>
#include <memory>
#include <random>
#include <vector>

#include <gtest/gtest.h>

#include "engine/scheduling/earlier_places.hpp"
#include "engine/scheduling/sequence_group.hpp"

namespace pagoda::scheduling {
namespace {

/// Returns the places where the `length` tokens before the end of `tokens` stand, the latest first.
std::vector<std::int32_t> places_of(const TokenIds& tokens, std::int32_t length) {
  std::vector<std::int32_t> places;
  const auto end = static_cast<std::int32_t>(tokens.size());
  for (std::int32_t place = end - 1; place >= length; --place) {
    if (std::equal(tokens.end() - length, tokens.end(), tokens.begin() + place - length)) places.push_back(place);
  }
  return places;
}

TEST(EarlierPlaces, FindThosePlacesOfRandomTextsThatASearchFinds) {
  std::mt19937 random(7);
  for (int round = 0; round < 200; ++round) {
    const auto length = static_cast<std::int32_t>(1 + random() % 4);
    TokenIds first(random() % 60);
    TokenIds second(random() % 300);
    for (TokenId& token : first) token = static_cast<TokenId>(random() % 5);
    for (TokenId& token : second) token = static_cast<TokenId>(random() % 5);
    TokenIds all = first;
    all.insert(all.end(), second.begin(), second.end());
    const JoinedTokens tokens{first, second};
    const std::int32_t end = tokens.size();
    // One object for the first tokens and another for the rest, in pieces.
    EarlierPlaces in_first(length, 0);
    EarlierPlaces in_second(length, static_cast<std::int32_t>(first.size()) + 1);
    in_first.add(tokens, std::min(static_cast<std::int32_t>(first.size()), end - 1));
    for (std::int32_t until = 0; until < end; until += static_cast<std::int32_t>(1 + random() % 40)) {
      in_second.add(tokens, until);
    }
    in_second.add(tokens, end - 1);
    std::vector<std::int32_t> found;
    for (const EarlierPlaces* places : {&in_second, &in_first}) {
      for (auto place = places->latest_like(tokens); place >= 0; place = places->before(place)) {
        ASSERT_LT(place, end);
        if (tokens.num_in_common(place, tokens, length) == length) found.push_back(place);
      }
    }
    EXPECT_EQ(found, places_of(all, length)) << "round " << round;
  }
}

TEST(EarlierPlaces, ListsDoNotDependOnHowThePlacesWereAdded) {
  std::mt19937 random(3);
  TokenIds text(200);
  for (TokenId& token : text) token = static_cast<TokenId>(random() % 1000);
  const JoinedTokens tokens{text, {}};
  EarlierPlaces at_once(2, 0);
  at_once.add(tokens, tokens.size());
  EarlierPlaces one_by_one(2, 0);
  for (std::int32_t end = 0; end <= tokens.size(); ++end) one_by_one.add(tokens, end);
  for (int round = 0; round < 500; ++round) {
    const TokenIds asked = {static_cast<TokenId>(random() % 1000), static_cast<TokenId>(random() % 1000)};
    std::int32_t place = at_once.latest_like({asked, {}});
    ASSERT_EQ(one_by_one.latest_like({asked, {}}), place);
    for (; place >= 0; place = at_once.before(place)) ASSERT_EQ(one_by_one.before(place), at_once.before(place));
  }
}

/// A group of one running sequence that has run all its tokens but the last.
class Lookups : public testing::Test {
 protected:
  void start(TokenIds prompt, TokenIds output, SpeculationConfig config = kConfig) {
    auto spec = std::make_shared<RequestSpec>();
    spec->id = 1;
    spec->prompt = std::make_shared<const TokenIds>(std::move(prompt));
    spec->sampling.max_tokens = max_tokens_;
    group_.spec = spec;
    group_.follow_spec(SchedulerConfig{}, history_);
    group_.forked = true;
    group_.sequences.resize(1);
    Sequence& s = sequence();
    s.id = 3;
    s.state = SequenceState::running;
    s.output = std::move(output);
    s.num_admitted_tokens = group_.prompt_len();
    proposer_ = std::make_unique<LookupProposer>(config, *group_.spec, TokenIds{kEos}, history_);
  }
  Sequence& sequence() { return group_.sequences.front(); }

  TokenIds propose(std::size_t max_drafts = 64, std::int32_t new_tokens = 1000) {
    sequence().ahead.drafts.clear();
    sequence().num_scheduled_tokens = group_.length(sequence()) - 1;
    proposer_->propose(group_, sequence(), max_drafts, new_tokens, chances_);
    EXPECT_EQ(chances_.size(), sequence().ahead.drafts.size());
    EXPECT_TRUE(std::ranges::is_sorted(chances_, std::greater{}));
    return sequence().ahead.drafts;
  }

  static constexpr TokenId kEos = 99;
  static constexpr SpeculationConfig kConfig{SpeculationMethod::ngram, 8, 2, 32};
  OutputHistory history_{SpeculationConfig{SpeculationMethod::suffix, 8, 2, 32}};
  std::int64_t max_tokens_ = 100;
  SequenceGroup group_;
  std::unique_ptr<LookupProposer> proposer_;
  std::vector<double> chances_;
};

TEST_F(Lookups, DraftsAreWhatFollowedTheLastTokensInThePrompt) {
  start({1, 2, 3, 4, 5, 6, 7}, {8, 2, 3});
  EXPECT_EQ(propose(), (TokenIds{4, 5, 6, 7}));  // others have too little chance
  EXPECT_EQ(propose(3), (TokenIds{4, 5, 6}));
  EXPECT_EQ(propose(0), TokenIds{});
}

TEST_F(Lookups, MoreRoomGivesMoreDraftsOfTheSameTokens) {
  start({1, 2, 3, 4, 5, 6, 7}, {8, 2, 3});
  EXPECT_EQ(propose(2), (TokenIds{4, 5}));
  EXPECT_EQ(propose(), (TokenIds{4, 5, 6, 7}));
}

TEST_F(Lookups, TokensThatNeverStoodBeforeHaveNoDrafts) {
  start({1, 2, 3, 4}, {5, 6, 7});
  EXPECT_EQ(propose(), TokenIds{});
  start({1, 2, 3, 4}, {5, 3});  // one token alone is too little
  EXPECT_EQ(propose(), TokenIds{});
}

TEST_F(Lookups, AnOutputThatRepeatsItselfGoesOn) {
  start({1}, {5, 6, 5, 6, 5, 6});
  EXPECT_EQ(propose(5), (TokenIds{5, 6, 5, 6, 5}));
}

TEST_F(Lookups, TheSampleInFlightTakesTheFirstToken) {
  start({1, 2, 3, 4, 5, 6, 7}, {8, 2, 3});
  sequence().num_placeholders = 1;
  EXPECT_EQ(propose(3), (TokenIds{5, 6, 7}));
  sequence().num_placeholders = 2;
  EXPECT_EQ(propose(3), TokenIds{});
}

TEST_F(Lookups, ThePlaceThatAgreesInTheMostTokensCounts) {
  start({7, 1, 2, 3, 40, 8, 1, 2, 3, 50, 1, 2, 3, 60}, {7, 1, 2, 3});
  EXPECT_EQ(propose(1), TokenIds{40});
}

TEST_F(Lookups, OfEqualPlacesTheMostCountAndThenTheLatest) {
  start({1, 2, 40, 1, 2, 40, 1, 2, 50}, {9, 1, 2});
  EXPECT_EQ(propose(1), TokenIds{40});
  const double two_of_three = chances_.front();
  start({1, 2, 40, 1, 2, 50}, {9, 1, 2});
  EXPECT_EQ(propose(1), TokenIds{50});
  EXPECT_LT(chances_.front(), two_of_three);
}

TEST_F(Lookups, ATokenThatEndsTheSequenceIsNoDraft) {
  start({1, 2, 3, kEos, 4}, {1, 2});
  EXPECT_EQ(propose(), TokenIds{3});
}

TEST_F(Lookups, ASequenceThatBeginsLaterDoesNotFindItsOwnEnd) {
  start({1, 2, 3, 4}, {1, 2});
  propose();  // adds the places of the prompt for all sequences
  Sequence& later = group_.sequences.emplace_back();
  later.id = 4;
  later.state = SequenceState::running;
  later.num_placeholders = 1;
  later.num_scheduled_tokens = later.num_admitted_tokens = 4;
  std::int32_t new_tokens = 100;
  proposer_->propose(group_, later, 8, new_tokens, chances_);
  EXPECT_TRUE(later.ahead.drafts.empty());
}

TEST_F(Lookups, ManyPlacesAreFoundInTheSameOrderByALoadedProposer) {
  std::mt19937 random(5);
  TokenIds prompt(300);
  for (TokenId& token : prompt) token = static_cast<TokenId>(random() % 4);
  TokenIds output(250);
  for (TokenId& token : output) token = static_cast<TokenId>(random() % 4);
  start(prompt, {0, 1});
  const SpeculationConfig config = kConfig;
  for (std::size_t known = 2; known < output.size(); ++known) {
    sequence().output.assign(output.begin(), output.begin() + static_cast<std::ptrdiff_t>(known));
    const TokenIds drafts = propose();
    std::vector<std::byte> bytes;
    Encoder out(bytes);
    proposer_->save(out);
    Decoder in(bytes);
    auto loaded = std::make_unique<LookupProposer>(config, *group_.spec, TokenIds{kEos}, history_);
    ASSERT_TRUE(loaded->load(in));
    std::swap(proposer_, loaded);
    ASSERT_EQ(propose(), drafts) << known << " tokens";
    std::swap(proposer_, loaded);
  }
}

TEST_F(Lookups, DraftsLeaveRoomForTheLastSample) {
  max_tokens_ = 5;
  start({1, 2, 3, 4, 5, 6, 7}, {8, 2, 3});
  EXPECT_EQ(propose(), TokenIds{4});
  max_tokens_ = 4;
  start({1, 2, 3, 4, 5, 6, 7}, {8, 2, 3});
  EXPECT_EQ(propose(), TokenIds{});
}

TEST_F(Lookups, WrongDraftsLowerTheChancesAndRightDraftsRaiseThem) {
  start({1, 2, 3, 4, 5, 6, 7}, {8, 2, 3});
  propose();
  const double before = chances_.front();
  proposer_->on_result(3, 4, 0);
  sequence().output = {8, 2, 3, 9, 2, 3};
  propose();
  const double after_wrong = chances_.front();
  EXPECT_LT(after_wrong, before);
  for (int i = 0; i < 10; ++i) proposer_->on_result(3, 4, 4);
  sequence().output = {8, 2, 3, 9, 2, 3, 9, 9, 2, 3};
  propose();
  EXPECT_GT(chances_.front(), after_wrong);
}

TEST_F(Lookups, ALongPromptIsLookedAtInPieces) {
  TokenIds prompt(1000);
  for (std::size_t i = 0; i < prompt.size(); ++i) prompt[i] = static_cast<TokenId>(1000 + i);
  start(prompt, {1500, 1501});
  EXPECT_EQ(propose(2, 900), TokenIds{});
  EXPECT_EQ(propose(2, 900), (TokenIds{1502, 1503}));
}

TEST_F(Lookups, ALoadedProposerGoesOnAsTheSavedOne) {
  TokenIds prompt(1000);
  for (std::size_t i = 0; i < prompt.size(); ++i) prompt[i] = static_cast<TokenId>(1000 + i);
  start(prompt, {1500, 1501});
  propose(4, 700);
  proposer_->on_result(3, 4, 1);
  const auto bytes_of = [](const LookupProposer& proposer) {
    std::vector<std::byte> bytes;
    Encoder out(bytes);
    proposer.save(out);
    return bytes;
  };
  const auto bytes = bytes_of(*proposer_);
  auto saved = std::move(proposer_);
  proposer_ = std::make_unique<LookupProposer>(kConfig, *group_.spec, TokenIds{kEos}, history_);
  Decoder in(bytes);
  ASSERT_TRUE(proposer_->load(in));
  EXPECT_EQ(bytes_of(*proposer_), bytes);
  const TokenIds drafts = propose(4, 400);
  const auto chances = chances_;
  EXPECT_EQ(drafts, (TokenIds{1502, 1503, 1504, 1505}));
  const auto after_load = bytes_of(*proposer_);
  proposer_ = std::move(saved);
  EXPECT_EQ(propose(4, 400), drafts);
  EXPECT_EQ(chances_, chances);
  EXPECT_EQ(bytes_of(*proposer_), after_load);
}

TEST_F(Lookups, EarlierOutputsOfTheUserAreSearchedToo) {
  RequestSpec earlier;
  earlier.user = "ann";
  earlier.prompt = std::make_shared<const TokenIds>(TokenIds{1, 2});
  history_.add(earlier, TokenIds{30, 31, 32, 33});
  const auto drafts_for = [&](const char* user, const char* salt, TokenIds prompt, TokenIds output) {
    start(std::move(prompt), std::move(output));
    sequence().num_placeholders = sequence().output.empty() ? 1 : 0;
    auto spec = std::make_shared<RequestSpec>(*group_.spec);
    spec->user = user;
    spec->cache_salt = salt;
    group_.spec = spec;
    return propose();
  };
  EXPECT_EQ(drafts_for("ann", "", {5, 6}, {30, 31}), (TokenIds{32, 33}));
  EXPECT_EQ(drafts_for("ann", "", {9, 1, 2}, {}), (TokenIds{31, 32, 33}));
  EXPECT_EQ(drafts_for("bob", "", {5, 6}, {30, 31}), TokenIds{});
  EXPECT_EQ(drafts_for("ann", "salt", {5, 6}, {30, 31}), TokenIds{});
  // An output that is added now is found at once, although the sequence has no new token.
  EXPECT_EQ(drafts_for("ann", "", {5, 6}, {30, 31}), (TokenIds{32, 33}));
  history_.add(earlier, TokenIds{7, 8, 30, 31, 40});
  history_.add(earlier, TokenIds{7, 8, 30, 31, 40});
  EXPECT_EQ(propose(), (TokenIds{40}));
}

TEST(OutputHistory, KeepsTheLatestTokensAndUsers) {
  OutputHistory history(SpeculationConfig{SpeculationMethod::suffix, 8, 2, 32});
  RequestSpec spec;
  spec.prompt = std::make_shared<const TokenIds>(TokenIds{1});
  const auto find = [&](int user) {
    spec.user = "user" + std::to_string(user);
    return history.find(spec);
  };
  for (int user = 0; user < 300; ++user) {
    spec.user = "user" + std::to_string(user);
    history.add(spec, TokenIds(1000, user));
  }
  std::size_t kept = 0;
  std::size_t users = 0;
  for (int user = 0; user < 300; ++user) {
    for (const OutputHistory::Text* text : find(user)) kept += text == nullptr ? 0 : text->tokens.size();
    users += find(user)[0] != nullptr ? 1 : 0;
  }
  EXPECT_LE(kept, static_cast<std::size_t>(SpeculationConfig::kMaxHistoryTokens));
  EXPECT_GT(kept, static_cast<std::size_t>(SpeculationConfig::kMaxHistoryTokens / 2));
  EXPECT_EQ(users, 256U);
  EXPECT_FALSE(find(299)[0]->tokens.empty());
  EXPECT_EQ(find(0)[0], nullptr);

  std::vector<std::byte> bytes;
  Encoder out(bytes);
  history.save(out);
  Decoder in(bytes);
  OutputHistory loaded(SpeculationConfig{SpeculationMethod::suffix, 8, 2, 32});
  ASSERT_TRUE(loaded.load(in, 300));
  std::vector<std::byte> again;
  Encoder out_again(again);
  loaded.save(out_again);
  EXPECT_EQ(again, bytes);
  OutputHistory without(SpeculationConfig{SpeculationMethod::ngram});
  Decoder in_without(bytes);
  EXPECT_FALSE(without.load(in_without, 300));
  Decoder in_small(bytes);
  OutputHistory small_vocabulary(SpeculationConfig{SpeculationMethod::suffix, 8, 2, 32});
  EXPECT_FALSE(small_vocabulary.load(in_small, 299)) << "a token is none of the vocabulary";
}

TEST(OutputHistory, AUserWithManyTokensDoesNotTakeThoseOfOthers) {
  OutputHistory history(SpeculationConfig{SpeculationMethod::suffix, 8, 2, 32});
  RequestSpec light;
  light.user = "light";
  light.prompt = std::make_shared<const TokenIds>(TokenIds{1});
  history.add(light, TokenIds{1, 2, 3});
  RequestSpec heavy = light;
  heavy.user = "heavy";
  for (int i = 0; i < 100; ++i) history.add(heavy, TokenIds(4000, 7));
  EXPECT_EQ(history.find(light)[0]->tokens, (TokenIds{1, 1, 2, 3, OutputHistory::kEnd}));
  history.add(light, TokenIds{4});
  std::size_t kept = 0;
  for (const OutputHistory::Text* text : history.find(heavy)) kept += text->tokens.size();
  EXPECT_GT(kept, 20'000U);
}

TEST(OutputHistory, KeepsNoMoreOutputsThanItShould) {
  SpeculationConfig config{SpeculationMethod::suffix, 8, 2, 32};
  config.max_outputs = 4;
  OutputHistory history(config);
  RequestSpec spec;
  spec.prompt = std::make_shared<const TokenIds>(TokenIds{1});
  for (int i = 0; i < 9; ++i) {
    history.add(spec, TokenIds{i, i});
    std::int32_t outputs = 0;
    for (const OutputHistory::Text* text : history.find(spec)) outputs += text->num_outputs;
    EXPECT_LE(outputs, 4);
    EXPECT_GE(outputs, std::min(i + 1, 2));
  }
  config.max_outputs = 0;
  OutputHistory none(config);
  none.add(spec, TokenIds{1, 2});
  EXPECT_EQ(none.find(spec)[0], nullptr);
}

}  // namespace
}  // namespace pagoda::scheduling

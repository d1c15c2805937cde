// Tests how many drafts run, of lookups and of a draft model.

#include "engine/scheduling/draft_planner.hpp"

#include <numeric>

#include "engine/scheduling/draft_model_proposer.hpp"
#include "engine/scheduling/draft_outcomes.hpp"
#include "tests/engine/scheduling/drafting_test.hpp"

namespace pagoda::scheduling {
namespace {

TEST_F(Drafting, ATextThatRepeatsItsPromptTakesAFewSteps) {
  for (const int depth : {1, 2}) {
    num_steps_ = 0;
    start(depth);
    add(1, numbers(100, 120), numbers(100, 120));
    run();
    EXPECT_LT(num_steps_, 20) << "depth " << depth;
    const auto& metrics = scheduler_->metrics();
    EXPECT_GT(metrics.accepted_draft_tokens, 95);
  }
}

TEST_F(Drafting, DraftsThatCostAsMuchAsStepsAreNotMade) {
  step_us_ = [](std::int64_t tokens) { return 1000 * tokens; };
  start(2);
  add(1, numbers(100, 100), numbers(100, 100));
  run();
  // The sizes of steps are tried a few times each.
  EXPECT_LT(scheduler_->metrics().draft_tokens, 80);
  EXPECT_EQ(drafts_of_steps_.back(), 0);
}

TEST_F(Drafting, OthersRunInTheSameStepsAsASequenceWithDrafts) {
  start(2);
  add(1, numbers(100, 900), numbers(100, 900));
  for (RequestId id = 2; id < 6; ++id) {
    add(id, {static_cast<TokenId>(1000 * id)}, numbers(static_cast<TokenId>(1000 * id + 1), 60));
  }
  run();
  EXPECT_LT(num_steps_, 90) << "the first sequence needs about 60 steps, and must not run in every other step only";
}

SpeculationConfig draft_model(std::int32_t max_drafts = 16) {
  SpeculationConfig config{SpeculationMethod::draft_model, max_drafts};
  config.draft_model = "small";
  return config;
}

std::int32_t sum(const std::vector<std::int32_t>& counts) {
  return std::accumulate(counts.begin(), counts.end(), 0);
}

TEST_F(Drafting, ADraftModelThatIsRightSavesMostSteps) {
  for (const int depth : {1, 2}) {
    start(depth, draft_model());
    add(1, numbers(100, 50), numbers(1000, 120));
    run();
    EXPECT_LT(num_steps_, 40) << "depth " << depth;
    const auto& metrics = scheduler_->metrics();
    EXPECT_GT(metrics.draft_tokens, 80);
    EXPECT_EQ(metrics.accepted_draft_tokens, metrics.draft_tokens);
  }
}

/// The harness checks that the head reads right drafts again, and nothing that no earlier step has run.
TEST_F(Drafting, ADraftHeadThatIsRightSavesMostSteps) {
  for (const int depth : {1, 2}) {
    for (const std::int32_t max_drafts : {16, 30}) {
      SpeculationConfig head{SpeculationMethod::eagle3, max_drafts};
      head.draft_model = "head";
      start(depth, head);
      add(1, numbers(100, 50), numbers(1000, 120));
      add(2, numbers(100, 500), numbers(2000, 300));
      add(3, {7}, numbers(3000, 120));
      run();
      EXPECT_LT(num_steps_, 120) << "depth " << depth;
      const auto& metrics = scheduler_->metrics();
      EXPECT_GT(metrics.draft_tokens, 200);
      EXPECT_EQ(metrics.accepted_draft_tokens, metrics.draft_tokens);
    }
  }
}

TEST_F(Drafting, ADraftModelThatIsWrongIsSeldomRun) {
  is_right_ = [](RequestId, std::size_t) { return false; };
  run_us_ = [](std::int64_t tokens) { return 300 + 5 * tokens; };
  start(2, draft_model());
  add(1, numbers(100, 50), numbers(1000, 600));
  run();
  EXPECT_GT(scheduler_->metrics().draft_tokens, 0);
  EXPECT_LT(scheduler_->metrics().draft_tokens, 60);
}

TEST_F(Drafting, AnotherSequenceBeginsWithTheResultsOfAll) {
  is_right_ = [](RequestId, std::size_t) { return false; };
  run_us_ = [](std::int64_t tokens) { return 300 + 5 * tokens; };
  start(2, draft_model());
  add(1, numbers(100, 50), numbers(1000, 100));
  run();
  const auto of_first = scheduler_->metrics().draft_tokens;
  EXPECT_GT(of_first, 2);
  add(2, numbers(100, 50), numbers(1000, 100));
  run();
  EXPECT_LE(scheduler_->metrics().draft_tokens - of_first, 1);
}

TEST_F(Drafting, ATextIsNotReadForDraftsThatSaveLess) {
  // Every fourth draft is right, and a run costs nearly as much as it saves.
  is_right_ = [](RequestId, std::size_t position) { return position % 4 == 0; };
  run_us_ = [](std::int64_t tokens) { return 190 + 10 * tokens; };
  start(2, draft_model());
  for (RequestId id = 1; id <= 4; ++id) add(id, numbers(100, 20), numbers(1000, 200));
  run();
  const auto before = inputs_of_steps_.size();
  add(5, numbers(100, 1500), numbers(5000, 50));
  run();
  EXPECT_LT(sum({inputs_of_steps_.begin() + static_cast<std::ptrdiff_t>(before), inputs_of_steps_.end()}), 200);
}

TEST_F(Drafting, ADraftModelThatBecomesRightIsTriedAgain) {
  is_right_ = [](RequestId, std::size_t position) { return position > 300; };
  run_us_ = [](std::int64_t tokens) { return 300 + 5 * tokens; };
  start(2, draft_model());
  add(1, numbers(100, 50), numbers(1000, 900));
  run();
  EXPECT_GT(scheduler_->metrics().accepted_draft_tokens, 200);
}

TEST_F(Drafting, ADraftModelAsSlowAsTheModelIsSeldomRun) {
  run_us_ = step_us_;
  start(2, draft_model());
  add(1, numbers(100, 50), numbers(1000, 300));
  run();
  EXPECT_LT(scheduler_->metrics().draft_tokens, 60);
}

TEST_F(Drafting, ManySequencesHaveDraftsOfTheSameRuns) {
  start(2, draft_model());
  for (RequestId id = 1; id <= 8; ++id) add(id, numbers(100, 20), numbers(1000, 60));
  run();
  EXPECT_LT(num_steps_, 40);
  const auto steps_with_all = std::ranges::count_if(drafts_of_steps_, [](std::int32_t count) { return count >= 8; });
  EXPECT_GT(steps_with_all, 3);
}

TEST_F(Drafting, SequencesWithoutRoomWaitForThoseWithABetterChance) {
  // Of 64 rows 52 are taken. The first sequences are never right.
  is_right_ = [](RequestId id, std::size_t) { return id > 26; };
  step_us_ = [](std::int64_t tokens) { return 10000 + tokens; };
  run_us_ = [](std::int64_t tokens) { return 20 + tokens; };
  start(2, draft_model());
  for (RequestId id = 1; id <= 52; ++id) add(id, numbers(100, 4), numbers(1000, 80));
  run();
  EXPECT_LE(*std::ranges::max_element(drafts_of_steps_), 64);
  const auto& metrics = scheduler_->metrics();
  EXPECT_GT(metrics.accepted_draft_tokens, 100);
  EXPECT_GT(metrics.accepted_draft_tokens, metrics.draft_tokens / 3);
}

TEST_F(Drafting, ALongPromptIsReadInPieces) {
  config_.max_chunk_us = 1000;  // reads about 180 tokens
  config_.max_num_batched_tokens = 2048;
  start(2, draft_model());
  add(1, numbers(100, 1500), numbers(5000, 400));
  run();
  EXPECT_LE(*std::ranges::max_element(inputs_of_steps_), 200);
  EXPECT_EQ(*std::ranges::find_if(inputs_of_steps_, [](std::int32_t count) { return count > 0; }), 64)
      << "before a duration is known";
  EXPECT_GT(std::ranges::count_if(inputs_of_steps_, [](std::int32_t count) { return count >= 64; }), 7);
  const auto first = std::ranges::find_if(drafts_of_steps_, [](std::int32_t count) { return count > 0; });
  const auto num_before = first - drafts_of_steps_.begin();
  EXPECT_GE(sum({inputs_of_steps_.begin(), inputs_of_steps_.begin() + num_before + 1}), 1500)
      << "there are no drafts before the prompt is read";
  EXPECT_GT(scheduler_->metrics().accepted_draft_tokens, 200);
}

TEST_F(Drafting, CachedTokensAreReadAgain) {
  start(2, draft_model());
  add(1, numbers(100, 80), numbers(1000, 2));  // too short to be read
  run();
  const std::int32_t before = sum(inputs_of_steps_);
  add(2, numbers(100, 80), numbers(1000, 60));
  run();
  EXPECT_GE(sum(inputs_of_steps_) - before, 80);
}

TEST_F(Drafting, DraftsHaveRoomBesideAllSequences) {
  config_.max_num_seqs = 2;
  config_.max_num_samples = 10;
  for (const auto& config : {draft_model(), SpeculationConfig{SpeculationMethod::ngram, 16, 2, 32}}) {
    start(2, config);
    for (RequestId id = 1; id <= 2; ++id) add(id, numbers(1000, 60), numbers(1000, 60));
    run();
    EXPECT_GE(*std::ranges::max_element(drafts_of_steps_), 8);
    EXPECT_LE(*std::ranges::max_element(drafts_of_steps_), 9) << "when one has ended";
  }
}

TEST_F(Drafting, ASequenceThatIsReadLeavesTheOthersTheirRuns) {
  // The second request has no draft that is right. While the first is read, it must not have drafts on its account.
  is_right_ = [](RequestId id, std::size_t) { return id == 1; };
  config_.max_chunk_us = 500;
  run_us_ = [](std::int64_t tokens) { return 30 + 5 * tokens; };
  start(2, draft_model());
  add(2, numbers(100, 4), numbers(1000, 300));
  add(1, numbers(1, 2000), numbers(5000, 300));
  run();
  std::int32_t drafts_meanwhile = 0;
  ASSERT_EQ(inputs_of_steps_.size(), drafts_of_steps_.size());
  for (std::size_t i = 0; i < inputs_of_steps_.size(); ++i) {
    if (inputs_of_steps_[i] >= 32) drafts_meanwhile += drafts_of_steps_[i];
  }
  EXPECT_LT(drafts_meanwhile, 20);
  EXPECT_GT(std::ranges::count_if(inputs_of_steps_, [](std::int32_t count) { return count >= 32; }), 15);
  EXPECT_GT(scheduler_->metrics().accepted_draft_tokens, 100);
}

TEST_F(Drafting, ReadingKeepsToTheTargetOfAStep) {
  config_.target_step_us = 1500;
  config_.max_num_batched_tokens = 2048;
  start(2, draft_model());
  add(1, numbers(100, 20), numbers(1000, 200));
  run();
  add(2, numbers(500, 900), numbers(5000, 300));
  run();
  EXPECT_LE(*std::ranges::max_element(inputs_of_steps_), 100);
}

TEST_F(Drafting, ALongPromptIsNotReadForAShortAnswer) {
  start(2, draft_model());
  add(1, numbers(100, 20), numbers(1000, 60));  // so that times are known
  run();
  const auto before = inputs_of_steps_.size();
  add(2, numbers(100, 1500), numbers(5000, 5));
  run();
  EXPECT_EQ(sum({inputs_of_steps_.begin() + static_cast<std::ptrdiff_t>(before), inputs_of_steps_.end()}), 0);
}

TEST_F(Drafting, OtherRequestsHaveDraftsOfLookupsWithADraftModel) {
  start(2, draft_model());
  auto spec = std::make_shared<RequestSpec>();
  spec->prompt = std::make_shared<const TokenIds>(numbers(1, 10));
  spec->adapter.facts.num_virtual_tokens = 4;
  SequenceGroup group;
  group.spec = spec;
  const OutputHistory history{SpeculationConfig{}};
  group.follow_spec(config_, history);
  EXPECT_EQ(dynamic_cast<DraftModelProposer*>(group.decoding->proposer()), nullptr) << "it cannot read virtual tokens";
  EXPECT_NE(group.decoding->proposer(), nullptr);
  spec->adapter.facts.num_virtual_tokens = 0;
  group.follow_spec(config_, history);
  EXPECT_NE(dynamic_cast<DraftModelProposer*>(group.decoding->proposer()), nullptr);
  spec->sampling.speculation = false;
  group.follow_spec(config_, history);
  EXPECT_EQ(group.decoding->proposer(), nullptr);
}

TEST(DraftOutcomes, TheShareFollowsTheResultsAndFades) {
  DraftOutcomes outcomes;
  EXPECT_DOUBLE_EQ(outcomes.share_right(0.6), 0.6);
  for (int i = 0; i < 50; ++i) outcomes.add(4, 4);
  EXPECT_GT(outcomes.share_right(0.6), 0.95);
  for (int i = 0; i < 50; ++i) outcomes.add(4, 0);
  EXPECT_LT(outcomes.share_right(0.6), 0.25);
  outcomes.fade(0);
  EXPECT_DOUBLE_EQ(outcomes.share_right(0.6), 0.6);
  EXPECT_TRUE(outcomes.is_valid());
  EXPECT_FALSE((DraftOutcomes{-1, 0}).is_valid());
}

}  // namespace
}  // namespace pagoda::scheduling

#include <gtest/gtest.h>

#include "tests/engine/memory/planning.hpp"

namespace pagoda::memory {
namespace {

class PrefixSharing : public testing::Test {
 protected:
  /// Computes group 1 with tokens 0, 1, ...
  void compute_prompt(std::int32_t length) {
    planning_.plan(planning_.step().admit_group(1, count_from(0, length)));
    planning_.plan(planning_.step().mark_computed(1, length));
  }
  std::int32_t cached_tokens(AdmissionCandidate candidate) {
    Step step = planning_.step();
    candidate.group = candidate.sequence = next_id_++;
    step.waiting.push_back(candidate);
    const std::int32_t cached = planning_.plan(step).grant.waiting[0].num_cached_tokens;
    planning_.plan(planning_.step().release(candidate.sequence));
    return cached;
  }
  static AdmissionCandidate prompt(TokenIds tokens) {
    Step step;
    return step.offer(0, std::move(tokens));
  }

  Planning planning_{small_pool(16)};
  SequenceId next_id_ = 100;
};

TEST_F(PrefixSharing, SharesTheFullBlocksThatTwoPromptsHaveInCommon) {
  compute_prompt(10);
  TokenIds tokens = count_from(0, 9);
  tokens.push_back(99);
  const auto planned = planning_.plan(planning_.step().admit_group(2, tokens));
  EXPECT_EQ(planned.grant.waiting[0].num_cached_tokens, 8);
  EXPECT_EQ(planned.grant.waiting[0].num_new_tokens, 2);
  EXPECT_EQ(planning_.table(2)[0], planning_.table(1)[0]);
  EXPECT_EQ(planning_.table(2)[1], planning_.table(1)[1]);
  EXPECT_NE(planning_.table(2)[2], planning_.table(1)[2]);
  EXPECT_EQ(planned.grant.memory.prefix_cache_hits, 8);
  EXPECT_EQ(planned.grant.memory.prefix_cache_queries, 20);
}

TEST_F(PrefixSharing, SharesPromptsFromTheStepOnThatIsToComputeThem) {
  const auto first =
      planning_.plan(planning_.step().admit_group(1, count_from(0, 10)).admit_group(2, count_from(0, 9)));
  EXPECT_EQ(first.grant.waiting[1].num_cached_tokens, 8) << "in the same step";
  EXPECT_EQ(first.grant.waiting[1].awaits_step, first.grant.step);
  EXPECT_EQ(planning_.num_owned(), 4);
  const auto second = planning_.plan(planning_.step().wait_for(0).admit_group(3, count_from(0, 9)));
  EXPECT_EQ(second.grant.waiting[0].num_cached_tokens, 8) << "in a later step, while the first is in flight";
  EXPECT_EQ(second.grant.waiting[0].awaits_step, first.grant.step);
  const auto third = planning_.plan(planning_.step().admit_group(4, count_from(0, 9)));
  EXPECT_EQ(third.grant.waiting[0].num_cached_tokens, 8);
  EXPECT_EQ(third.grant.waiting[0].awaits_step, 0) << "the step has passed";
}

TEST_F(PrefixSharing, ForgetsWhatItIsToldToAndNobodyLosesBlocks) {
  compute_prompt(10);
  Step idle = planning_.step();
  idle.release(1);
  planning_.plan(idle);
  planning_.plan(planning_.step().admit_group(2, count_from(50, 10)));
  EXPECT_EQ(cached_tokens(prompt(count_from(0, 10))), 8);
  Step forgetting = planning_.step();
  forgetting.reset_prefix_cache = true;
  const auto owned = planning_.num_owned();
  EXPECT_EQ(planning_.plan(forgetting).grant.memory.device_blocks_cached, 0);
  EXPECT_EQ(planning_.num_owned(), owned) << "who runs keeps its blocks";
  EXPECT_EQ(cached_tokens(prompt(count_from(0, 10))), 0);
  EXPECT_EQ(cached_tokens(prompt(count_from(50, 10))), 0) << "nor are those found";
  EXPECT_EQ(cached_tokens(prompt(count_from(0, 10))), 8) << "what comes later is";
}

TEST_F(PrefixSharing, AResetAlsoForgetsBlocksThatWaitToBeMergedWithEqualOnes) {
  Step step = planning_.step();
  step.offer(1, count_from(0, 9)).use_prefix_cache = false;
  step.offer(2, count_from(0, 9)).use_prefix_cache = false;
  planning_.plan(step);
  Step resetting = planning_.step().mark_computed(1, 9).mark_computed(2, 9);
  resetting.reset_prefix_cache = true;
  planning_.plan(resetting);
  EXPECT_EQ(cached_tokens(prompt(count_from(0, 9))), 0);
}

TEST_F(PrefixSharing, SharesOfAChunkedPromptWhatIsScheduled) {
  Step step = planning_.step();
  step.offer(1, count_from(0, 12)).may_chunk = true;
  step.token_budget = 7;
  planning_.plan(step);
  EXPECT_EQ(cached_tokens(prompt(count_from(0, 12))), 4);
}

TEST_F(PrefixSharing, NeverSharesBlocksOfAStepThatFailed) {
  const auto failed =
      planning_.plan(planning_.step().admit_group(1, count_from(0, 12)).admit_group(2, count_from(50, 6)));
  Step step = planning_.step().release(1);
  step.first_failed_step = failed.grant.step;
  step.admit_group(3, count_from(0, 12));
  EXPECT_EQ(planning_.plan(step).grant.waiting[0].num_cached_tokens, 0);
  EXPECT_EQ(planning_.stats().device_blocks_cached, 0);
  EXPECT_EQ(cached_tokens(prompt(count_from(50, 6))), 0);
  EXPECT_EQ(cached_tokens(prompt(count_from(0, 12))), 8) << "of the one that computes it anew";
}

TEST_F(PrefixSharing, KeepsWhatWasComputedBeforeAStepThatFailed) {
  planning_.plan(planning_.step().admit_group(1, count_from(0, 6)));
  const auto failed = planning_.plan(planning_.step().admit_group(2, count_from(0, 10)));
  Step step = planning_.step().release(2);
  step.first_failed_step = failed.grant.step;
  planning_.plan(step);
  EXPECT_EQ(cached_tokens(prompt(count_from(0, 10))), 4);
}

TEST_F(PrefixSharing, MergesEqualBlocksOnceBothAreComputed) {
  // Neither group shares the other's prompt, because both must compute every token.
  Step step = planning_.step();
  step.offer(1, count_from(0, 9)).use_prefix_cache = false;
  step.offer(2, count_from(0, 9)).use_prefix_cache = false;
  planning_.plan(step);
  EXPECT_EQ(planning_.num_owned(), 6);
  planning_.plan(planning_.step().wait_for(0).mark_computed(2, 9));
  EXPECT_EQ(planning_.num_owned(), 6) << "the one that would stay is not computed yet";
  planning_.plan(planning_.step().sample(1, 7).sample(2, 8).mark_computed(1, 9).mark_computed(2, 9));
  EXPECT_EQ(planning_.num_owned(), 4);
  planning_.plan(planning_.step().run(1, {{1, 9, 1, 0}}).run(2, {{2, 9, 1, 0}}));
  EXPECT_EQ(planning_.table(2)[0], planning_.table(1)[0]);
  EXPECT_EQ(planning_.table(2)[1], planning_.table(1)[1]);
  EXPECT_NE(planning_.table(2)[2], planning_.table(1)[2]);
}

TEST_F(PrefixSharing, KeepsABlockThatADraftModelMayHaveRead) {
  BlockSpaceConfig config = small_pool(16);
  config.layout.draft_bytes = 64;
  Planning planning(config);
  Step step = planning.step();
  step.offer(1, count_from(0, 9)).use_prefix_cache = false;
  step.offer(2, count_from(0, 9)).use_prefix_cache = false;
  planning.plan(step);
  planning.plan(planning.step().wait_for(0).sample(1, 7).sample(2, 8).mark_computed(1, 9).mark_computed(2, 9));
  EXPECT_EQ(planning.num_owned(), 6) << "the other block may lack its KV";
  planning.plan(planning.step().release(1).release(2));
  EXPECT_EQ(planning.num_owned(), 0);
}

TEST_F(PrefixSharing, AlwaysLeavesTheLastTokenToCompute) {
  compute_prompt(8);
  EXPECT_EQ(cached_tokens(prompt(count_from(0, 8))), 4);
  EXPECT_EQ(cached_tokens(prompt(count_from(0, 9))), 8);
}

TEST_F(PrefixSharing, TellsApartSaltsAndAdapters) {
  compute_prompt(8);
  AdmissionCandidate salted = prompt(count_from(0, 9));
  salted.cache_salt = "tenant";
  EXPECT_EQ(cached_tokens(salted), 0);
  AdmissionCandidate adapted = prompt(count_from(0, 9));
  adapted.adapter = 1;
  EXPECT_EQ(cached_tokens(adapted), 0);
  EXPECT_EQ(cached_tokens(prompt(count_from(0, 9))), 8);
}

TEST_F(PrefixSharing, ComputesEveryTokenOfAGroupThatAsksForIt) {
  compute_prompt(8);
  AdmissionCandidate candidate = prompt(count_from(0, 9));
  candidate.use_prefix_cache = false;
  EXPECT_EQ(cached_tokens(candidate), 0);
}

TEST_F(PrefixSharing, FindsGeneratedTokensToo) {
  compute_prompt(6);
  planning_.plan(planning_.step().sample(1, 6).run(1, {{1, 6, 1, 0}}));
  planning_.plan(planning_.step().sample(1, 7).mark_computed(1, 7).run(1, {{1, 7, 1, 0}}));
  planning_.plan(planning_.step().sample(1, 8).mark_computed(1, 8));
  EXPECT_EQ(cached_tokens(prompt(count_from(0, 9))), 8);
}

TEST_F(PrefixSharing, WaitsWithABlockUntilItsTokensAreKnown) {
  compute_prompt(7);
  planning_.plan(planning_.step().run(1, {{1, 7, 1, 0}}));
  planning_.plan(planning_.step().mark_computed(1, 8));
  EXPECT_EQ(cached_tokens(prompt(count_from(0, 9))), 4);
  planning_.plan(planning_.step().sample(1, 7).mark_computed(1, 8));
  EXPECT_EQ(cached_tokens(prompt(count_from(0, 9))), 8);
}

TEST_F(PrefixSharing, TakesNothingOfAChildForComputedThatOnlyItsParentHasComputed) {
  compute_prompt(7);
  planning_.plan(planning_.step().run(1, {{1, 7, 1, 0}}));
  planning_.plan(planning_.step().mark_computed(1, 8));
  planning_.plan(planning_.step().fork_from(1, 2).sample(1, 7).sample(2, 70).mark_computed(2, 7));
  TokenIds of_child = count_from(0, 7);
  of_child.insert(of_child.end(), {70, 71});
  EXPECT_EQ(cached_tokens(prompt(of_child)), 4);
}

TEST_F(PrefixSharing, KeepsTheBlocksOfFinishedSequencesUntilOthersNeedThem) {
  compute_prompt(12);
  planning_.plan(planning_.step().release(1));
  EXPECT_EQ(planning_.stats().device_blocks_cached, 3);
  EXPECT_EQ(planning_.stats().device_blocks_free, 13);
  // 14 blocks: all free ones, and the tail of the cached chain.
  planning_.plan(planning_.step().admit_group(2, count_from(500, 14 * 4)));
  EXPECT_EQ(planning_.stats().device_blocks_cached, 2);
  planning_.plan(planning_.step().release(2));
  EXPECT_EQ(cached_tokens(prompt(count_from(0, 13))), 8);
}

TEST_F(PrefixSharing, EvictsTheChainUsedLongestAgoFirst) {
  compute_prompt(8);
  planning_.plan(planning_.step().admit_group(2, count_from(100, 8)));
  planning_.plan(planning_.step().mark_computed(2, 8).release(1));
  planning_.plan(planning_.step().release(2));
  EXPECT_EQ(cached_tokens(prompt(count_from(0, 9))), 8) << "used again: now the younger of the two";
  planning_.plan(planning_.step().admit_group(3, count_from(500, 14 * 4)));
  planning_.plan(planning_.step().release(3));
  EXPECT_EQ(cached_tokens(prompt(count_from(0, 9))), 8);
  EXPECT_EQ(cached_tokens(prompt(count_from(100, 9))), 0);
}

TEST_F(PrefixSharing, CountsAHitOnEvictableBlocksAsTakingThem) {
  compute_prompt(8);
  planning_.plan(planning_.step().release(1));
  planning_.plan(planning_.step().admit_group(2, count_from(500, 12 * 4)));
  EXPECT_EQ(planning_.stats().device_blocks_free + planning_.stats().device_blocks_cached, 4);
  // 2 cached and 3 new blocks: one too many.
  TokenIds tokens = count_from(0, 20);
  EXPECT_EQ(planning_.plan(planning_.step().admit_group(3, tokens)).grant.waiting[0].status, AllocStatus::later);
  tokens.resize(16);
  EXPECT_EQ(planning_.plan(planning_.step().admit_group(3, tokens)).grant.waiting[0].num_cached_tokens, 8);
}

TEST(PrefixSharingOff, FindsAndKeepsNothing) {
  BlockSpaceConfig config = small_pool();
  config.enable_prefix_caching = false;
  Planning planning(config);
  planning.plan(planning.step().admit_group(1, count_from(0, 8)));
  planning.plan(planning.step().mark_computed(1, 8));
  EXPECT_EQ(planning.plan(planning.step().admit_group(2, count_from(0, 9))).grant.waiting[0].num_cached_tokens, 0);
  planning.plan(planning.step().release(1).release(2));
  EXPECT_EQ(planning.stats().device_blocks_free, 10);
}

}  // namespace
}  // namespace pagoda::memory

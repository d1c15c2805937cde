// Tests sequences with a block table in each of several KV groups.

#include <algorithm>
#include <set>

#include <gtest/gtest.h>

#include "tests/engine/memory/planning.hpp"

namespace pagoda::memory {
namespace {

/// Returns a pool of blocks of 4 slots for a group without a window and groups with these windows.
BlockSpaceConfig full_and_windows(std::initializer_list<std::int32_t> windows, std::int32_t num_device_blocks,
                                  std::int32_t num_host_blocks = 0) {
  BlockSpaceConfig config = small_pool(num_device_blocks, num_host_blocks);
  for (const std::int32_t window : windows) config.layout.groups.push_back(KvLayout::uniform(4, window)[0]);
  return config;
}

/// Computes a prompt of `length` tokens alone and releases it.
void compute_and_release(Planning& planning, SequenceId id, TokenIds tokens) {
  const auto length = static_cast<std::int32_t>(tokens.size());
  const auto planned = planning.plan(planning.step().admit_group(id, std::move(tokens)));
  ASSERT_EQ(planned.grant.waiting[0].status, AllocStatus::ok);
  planning.plan(planning.step().mark_computed(id, length).release(id));
}

TEST(KvGroups, EachHoldsWhatItsLayersSee) {
  Planning planning(full_and_windows({8, 20}, 100));
  planning.plan(planning.step().admit_group(1, count_from(0, 100)));
  planning.plan(planning.step().mark_computed(1, 100).run(1, {{1, 100, 1, 0}}));
  EXPECT_EQ(planning.num_owned(), 26 + 3 + 6)
      << "all blocks; those of the last 7 and of the last 19 tokens, and a new one";
  for (KvGroupId group = 0; group < 3; ++group) {
    EXPECT_EQ(std::ssize(planning.table(1, group)), 26) << "indices stay logical";
  }
  std::set<BlockId> last;
  for (KvGroupId group = 0; group < 3; ++group) last.insert(planning.table(1, group).back());
  EXPECT_EQ(last.size(), 3U) << "no block is of two groups";
}

TEST(KvGroups, APrefixIsFoundWithoutTheBlocksThatHaveLeftAWindow) {
  Planning planning(full_and_windows({8}, 30));
  compute_and_release(planning, 1, count_from(0, 41));
  // 22 blocks were used, and 20 are cached. The new prompt takes those that are used least recently.
  auto planned = planning.plan(planning.step().admit_group(1, count_from(0, 41)));
  ASSERT_EQ(planned.grant.waiting[0].num_cached_tokens, 40);
  planning.plan(planning.step().mark_computed(1, 41).run(1, {{1, 41, 1, 0}}));
  EXPECT_EQ(planning.num_owned(), 11 + 3) << "the window of 8 holds 3 of 11 blocks";
  planned = planning.plan(planning.step().admit_group(2, count_from(1000, 32)));
  ASSERT_EQ(planned.grant.waiting[0].status, AllocStatus::ok);
  EXPECT_EQ(planning.stats().device_blocks_cached, 0) << "what lay before the window of sequence 1 is gone";
  planning.plan(planning.step().mark_computed(2, 32).release(1).release(2));
  planned = planning.plan(planning.step().admit_group(3, count_from(0, 41)));
  EXPECT_EQ(planned.grant.waiting[0].num_cached_tokens, 40);
}

TEST(KvGroups, APrefixEndsBeforeTheBlockThatOneOfThemLacks) {
  Planning planning(full_and_windows({8}, 24));
  compute_and_release(planning, 1, count_from(0, 41));
  ASSERT_EQ(planning.stats().device_blocks_cached, 20);
  // Six blocks are needed, of which four are free. The two that are evicted are the ends of both prefixes.
  const auto planned = planning.plan(planning.step().admit_group(2, count_from(1000, 9)));
  ASSERT_EQ(planned.grant.waiting[0].status, AllocStatus::ok);
  ASSERT_EQ(planning.stats().device_blocks_cached, 18);
  planning.plan(planning.step().mark_computed(2, 9).release(2));
  EXPECT_EQ(planning.plan(planning.step().admit_group(3, count_from(0, 41))).grant.waiting[0].num_cached_tokens, 36);
}

TEST(KvGroups, AreSwappedTogether) {
  Planning planning(full_and_windows({8}, 20, 20));
  planning.plan(planning.step().admit_group(1, count_from(0, 22)));
  planning.plan(planning.step().mark_computed(1, 22).run(1, {{1, 22, 1, 0}}));
  const std::int32_t owned = planning.num_owned();
  ASSERT_EQ(owned, 6 + 3);
  Step step = planning.step().mark_computed(1, 23).run(1, {{1, 23, 1, 0}}, PreemptionMode::swap);
  step.num_preempted_for_rows = 1;
  auto planned = planning.plan(step);
  ASSERT_EQ(planned.grant.running[0], RunningOutcome::preempted_swap);
  EXPECT_EQ(planning.num_owned(), 0);
  EXPECT_EQ(planning.stats().host_blocks_total - planning.stats().host_blocks_free, owned);
  planned = planning.plan(planning.step().swap_in(1, {{1, 23, 1, 0}}));
  ASSERT_EQ(planned.grant.swapped[0], AllocStatus::ok);
  EXPECT_EQ(planning.num_owned(), 6 + 2) << "a block has left the window";
  EXPECT_EQ(planned.grant.table_deltas.size(), 2U) << "the new row gets the table of each group";
}

TEST(KvGroups, AWrittenBlockIsCopiedInEach) {
  Planning planning(full_and_windows({8}, 20));
  planning.plan(planning.step().admit_group(1, count_from(0, 6)));
  const auto planned =
      planning.plan(planning.step().mark_computed(1, 6).fork_from(1, 2).sample(1, 70).sample(2, 71).run(
          1, {{1, 6, 1, 0}, {2, 6, 1, 0}}));
  ASSERT_EQ(planned.grant.running[0], RunningOutcome::scheduled);
  EXPECT_EQ(planned.cache_plan.copies.size(), 2U);
  for (KvGroupId group = 0; group < 2; ++group) {
    EXPECT_EQ(planning.table(1, group)[0], planning.table(2, group)[0]);
    EXPECT_NE(planning.table(1, group)[1], planning.table(2, group)[1]);
  }
}

TEST(KvGroups, APromptInChunksKeepsTheBlocksOfItsRestInEachGroup) {
  BlockSpaceConfig config = full_and_windows({8}, 20);
  config.enable_prefix_caching = false;
  Planning planning(config);
  // It takes 10 blocks in the group without a window, and at most 5 at once in the other.
  Step step = planning.step();
  AdmissionCandidate& candidate = step.offer(1, count_from(0, 40));
  candidate.may_chunk = true;
  candidate.max_chunk = 8;
  ASSERT_EQ(planning.plan(step).grant.waiting[0].status, AllocStatus::ok);
  const auto status_behind = [&](std::int32_t computed) {
    step = planning.step().mark_computed(1, computed).run(1, {{1, computed, 8, 0}});
    step.offer(2, count_from(100, 12));  // takes 6 blocks
    const auto planned = planning.plan(step);
    EXPECT_EQ(planned.grant.running[0], RunningOutcome::scheduled);
    return planned.grant.waiting[0].status;
  };
  EXPECT_EQ(status_behind(8), AllocStatus::later)
      << "4 + 4 blocks are owned, 6 are kept for the rest and 1 for the window";
  EXPECT_EQ(status_behind(16), AllocStatus::ok) << "6 + 4 blocks are owned, and 4 are kept for the rest";
}

TEST(KvGroups, APromptWhoseWindowsFitOnlyInChunksRunsInChunks) {
  Planning planning(full_and_windows({8, 8}, 20));
  Step step = planning.step();
  step.offer(1, count_from(0, 40)).may_chunk = true;
  const auto planned = planning.plan(step);
  ASSERT_EQ(planned.grant.waiting[0].status, AllocStatus::ok);
  EXPECT_EQ(planned.grant.waiting[0].num_new_tokens, 10)
      << "10 blocks, and 5 in each window: ceil((8 + 10 - 2) / 4) + 1";
  step = planning.step().release(1);
  step.offer(2, count_from(0, 40)).may_chunk = false;
  EXPECT_EQ(planning.plan(step).grant.waiting[0].status, AllocStatus::never);
}

}  // namespace
}  // namespace pagoda::memory

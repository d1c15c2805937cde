#include <algorithm>

#include "tests/engine/memory/planning.hpp"

namespace pagoda::memory {
namespace {

using view::Cell;

std::int64_t count(const view::BlockMap& map, const Cell& cell) {
  return std::ranges::count(map.cells, cell);
}

TEST(BlockMap, ShowsWhatIsFreeOwnedSharedAndCached) {
  Planning planning(small_pool());
  auto map = planning.block_map();
  EXPECT_EQ(map.num_blocks, 10);
  EXPECT_EQ(map.blocks_per_cell, 1);
  EXPECT_EQ(count(map, {}), 10);

  planning.plan(planning.step().admit_group(1, count_from(0, 6)));
  planning.plan(planning.step().fork_from(1, 2).mark_computed(1, 6));
  map = planning.block_map();
  EXPECT_EQ(map.step, 2U);
  ASSERT_EQ(map.owners.size(), 2U);
  EXPECT_EQ(map.owners[0].sequence, 1U);
  EXPECT_EQ(map.owners[1].sequence, 2U);
  EXPECT_EQ(map.owners[1].request, 1U);
  EXPECT_EQ(map.owners[1].num_blocks, 2);
  EXPECT_EQ(map.owners[1].num_tokens, 6);
  EXPECT_EQ(map.cells[static_cast<std::size_t>(planning.table(1)[0])], (Cell{0, 2, true})) << "full, so findable";
  EXPECT_EQ(map.cells[static_cast<std::size_t>(planning.table(1)[1])], (Cell{0, 2, false}));
  EXPECT_EQ(count(map, {}), 8);

  planning.plan(planning.step().release(1).release(2));
  map = planning.block_map();
  EXPECT_TRUE(map.owners.empty());
  EXPECT_EQ(count(map, {-1, 0, true}), 1);
  EXPECT_EQ(count(map, {}), 9);
}

TEST(BlockMap, TellsCopiesOnWrite) {
  Planning planning(small_pool());
  planning.plan(planning.step().admit_group(1, count_from(0, 6)));
  planning.plan(planning.step().fork_from(1, 2).sample(1, 6).sample(2, 60));
  EXPECT_TRUE(planning.block_map().moves.empty());
  const auto planned = planning.plan(planning.step().run(1, {{1, 6, 1, 0}, {2, 6, 1, 0}}));
  ASSERT_EQ(planned.cache_plan.copies.size(), 1U);
  const auto moves = planning.block_map().moves;
  ASSERT_EQ(moves.size(), 1U);
  EXPECT_EQ(moves[0].kind, view::MoveKind::copy);
  EXPECT_EQ(moves[0].step, planned.grant.step);
  EXPECT_EQ(moves[0].from, planned.cache_plan.copies[0].from);
  EXPECT_EQ(moves[0].to, planned.cache_plan.copies[0].to);
}

TEST(BlockMap, SwappedSequencesAreNamedWithoutBlocksOfTheDevice) {
  Planning planning(small_pool(4));
  planning.plan(planning.step().admit_group(1, count_from(0, 8)).admit_group(2, count_from(50, 8)));
  const auto planned = planning.plan(planning.step()
                                         .mark_computed(1, 8)
                                         .mark_computed(2, 8)
                                         .run(1, {{1, 8, 1, 0}})
                                         .run(2, {{2, 8, 1, 0}}, PreemptionMode::swap));
  ASSERT_EQ(planned.grant.running[1], RunningOutcome::preempted_swap);
  const auto map = planning.block_map();
  ASSERT_EQ(map.owners.size(), 2U);
  EXPECT_FALSE(map.owners[0].on_host);
  EXPECT_TRUE(map.owners[1].on_host);
  EXPECT_FALSE(std::ranges::any_of(map.cells, [](const Cell& cell) { return cell.owner == 1; }));
  EXPECT_EQ(std::ranges::count(map.moves, view::MoveKind::swap_out, &view::Move::kind),
            std::ssize(planned.cache_plan.swap_out));
}

TEST(BlockMap, OfALargePoolIsNoLargerAndLosesNoSequence) {
  Planning planning(small_pool(1'000'000));
  planning.plan(planning.step().admit_group(1, count_from(0, 12)).admit_group(2, count_from(50, 400)));
  const auto map = planning.block_map();
  EXPECT_EQ(map.blocks_per_cell, 123);
  EXPECT_EQ(map.cells.size(), 8131U);
  EXPECT_LE(map.cells.size(), static_cast<std::size_t>(view::kMaxCells));
  std::int32_t references = 0;
  for (const Cell& cell : map.cells) references += cell.references;
  EXPECT_EQ(references, 3 + 100);
  EXPECT_TRUE(std::ranges::any_of(map.cells, [](const Cell& cell) { return cell.owner == 0; }));
}

TEST(BlockMap, NamesNoMoreSequencesThanItMay) {
  Planning planning(small_pool(1000));
  auto step = planning.step();
  step.token_budget = 10'000;
  for (SequenceId id = 1; id <= view::kMaxOwners + 8; ++id) step.admit_group(id, {static_cast<TokenId>(id)});
  planning.plan(step);
  const auto map = planning.block_map();
  EXPECT_EQ(map.owners.size(), view::kMaxOwners);
  EXPECT_EQ(map.num_owners, static_cast<std::int64_t>(view::kMaxOwners) + 8);
  EXPECT_EQ(count(map, {-1, 1, false}), 8) << "used by somebody who is not named";
}

}  // namespace
}  // namespace pagoda::memory

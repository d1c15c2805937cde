#include "engine/memory/evictor.hpp"

#include <map>
#include <set>
#include <tuple>

#include <gtest/gtest.h>
#include <rapidcheck.h>

namespace pagoda::memory {
namespace {

TEST(Evictor, GivesUpTheLeastRecentlyUsedBlockFirst) {
  Evictor evictor(4);
  evictor.add(2, 7, 1);
  evictor.add(0, 5, 1);
  evictor.add(3, 6, 1);
  EXPECT_EQ(evictor.pop(), 0);
  EXPECT_EQ(evictor.pop(), 3);
  EXPECT_EQ(evictor.pop(), 2);
  EXPECT_EQ(evictor.size(), 0);
}

TEST(Evictor, GivesUpTheLongestPrefixFirstAmongBlocksUsedLastInOneStep) {
  Evictor evictor(4);
  evictor.add(0, 5, 1);
  evictor.add(1, 5, 3);
  evictor.add(2, 5, 2);
  evictor.add(3, 4, 1);
  EXPECT_EQ(evictor.pop(), 3);
  EXPECT_EQ(evictor.pop(), 1);
  EXPECT_EQ(evictor.pop(), 2);
  EXPECT_EQ(evictor.pop(), 0);
}

TEST(Evictor, AgreesWithASortedSetAfterAnyAddsRemovesAndPops) {
  const bool ok = rc::check([] {
    const int num_blocks = *rc::gen::inRange(1, 40);
    Evictor evictor(num_blocks);
    std::set<std::tuple<StepId, std::int32_t, BlockId>> model;  // prefix length negated
    std::map<BlockId, std::tuple<StepId, std::int32_t, BlockId>> where;
    const auto commands = *rc::gen::container<std::vector<std::tuple<int, int, int, int>>>(rc::gen::tuple(
        rc::gen::inRange(0, 3), rc::gen::inRange(0, num_blocks), rc::gen::inRange(0, 6), rc::gen::inRange(1, 9)));
    for (const auto& [command, block, step, length] : commands) {
      if (command == 2 && !model.empty()) {
        const BlockId popped = evictor.pop();
        RC_ASSERT(popped == std::get<2>(*model.begin()));
        where.erase(popped);
        model.erase(model.begin());
      } else if (where.contains(block)) {
        evictor.remove(block);
        model.erase(where.at(block));
        where.erase(block);
      } else {
        evictor.add(block, static_cast<StepId>(step), length);
        where[block] = {static_cast<StepId>(step), -length, block};
        model.insert(where[block]);
      }
      RC_ASSERT(evictor.size() == static_cast<std::int32_t>(model.size()));
      RC_ASSERT(evictor.contains(block) == where.contains(block));
    }
  });
  EXPECT_TRUE(ok);
}

}  // namespace
}  // namespace pagoda::memory

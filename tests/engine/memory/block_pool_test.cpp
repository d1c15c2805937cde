#include "engine/memory/block_pool.hpp"

#include <memory>

#include <gtest/gtest.h>

namespace pagoda::memory {
namespace {

TEST(BlockPool, HandsOutEachBlockOnceAndFirstWhatWasFreedLast) {
  BlockPool pool(3);
  const BlockId a = pool.allocate();
  const BlockId b = pool.allocate();
  const BlockId c = pool.allocate();
  EXPECT_EQ(a + b + c, 0 + 1 + 2);
  EXPECT_EQ(pool.num_free(), 0);
  for (const BlockId block : {a, c, b}) {
    EXPECT_TRUE(pool.release(block));
    pool.put_free(block);
  }
  EXPECT_EQ(pool.allocate(), b);
  EXPECT_TRUE(pool.release(b));
  pool.put_free(b);
}

TEST(BlockPool, CountsOwnersAndTellsTheLastOneToGo) {
  BlockPool pool(1);
  const BlockId block = pool.allocate();
  pool.share(block);
  EXPECT_EQ(pool.num_owners(block), 2);
  EXPECT_EQ(pool.num_owned(), 1);
  EXPECT_FALSE(pool.release(block));
  EXPECT_TRUE(pool.release(block));
  EXPECT_EQ(pool.num_owned(), 0);
  pool.put_free(block);
}

TEST(BlockPool, RemembersTheLastStepThatTouchedABlock) {
  BlockPool pool(1);
  pool.touch(0, 4);
  pool.touch(0, 3);
  EXPECT_EQ(pool.last_touched(0), 4U);
}

TEST(BlockPoolDeathTest, StopsOnADoubleFreeAUseAfterFreeAndALeak) {
  BlockPool pool(2);
  EXPECT_DEATH(pool.release(0), "without an owner was released");
  EXPECT_DEATH(pool.put_free(0), "once");
  EXPECT_DEATH(pool.share(0), "only an owned block");
  EXPECT_DEATH(pool.adopt(0), "only a kept block");
  EXPECT_DEATH(
      {
        BlockPool leaking(1);
        leaking.allocate();
      },
      "leaked");
}

}  // namespace
}  // namespace pagoda::memory

#include "engine/memory/block_table.hpp"

#include <vector>

#include <gtest/gtest.h>

namespace pagoda::memory {
namespace {

TEST(BlockTable, TellsTheFirstEntryThatItsRowDoesNotHave) {
  BlockTable table;
  table.push_back(7);
  table.push_back(8);
  EXPECT_EQ(table.first_changed(), 0);
  table.mark_sent();
  EXPECT_TRUE(table.changed().empty());
  table.push_back(9);
  EXPECT_EQ(std::vector(table.changed().begin(), table.changed().end()), (std::vector<BlockId>{9}));
  table.replace(1, 5);
  EXPECT_EQ(std::vector(table.changed().begin(), table.changed().end()), (std::vector<BlockId>{5, 9}));
  table.mark_sent();
  EXPECT_EQ(table.pop_back(), 9);
  table.push_back(4);
  EXPECT_EQ(table.first_changed(), 2);
  table.mark_all_changed();
  EXPECT_EQ(table.first_changed(), 0);
}

TEST(BlockTable, KeepsLogicalIndicesWhenItsOldestBlocksAreGivenUp) {
  BlockTable table;
  for (const BlockId block : {7, 8, 9}) table.push_back(block);
  EXPECT_EQ(table.drop_first(), 7);
  EXPECT_EQ(table.size(), 3);
  EXPECT_EQ(table.num_owned(), 2);
  EXPECT_EQ(table[2], 9);
  EXPECT_EQ(table.owned().front(), 8);
}

}  // namespace
}  // namespace pagoda::memory

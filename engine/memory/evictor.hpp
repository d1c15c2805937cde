#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "engine/types.hpp"

namespace pagoda::memory {

/// The order in which cached blocks that nobody owns are given up: least recently used first; of blocks last used in
/// the same step the one with the longest prefix first, so that a chain loses its tail before its head.
/// A binary heap that knows where each block stands: O(log n), no allocation after construction.
class Evictor {
 public:
  explicit Evictor(std::int32_t num_blocks);

  void add(BlockId block, StepId last_used, std::int32_t prefix_blocks);
  void remove(BlockId block);
  /// Removes and returns the block to give up next. Must not be empty.
  BlockId pop();

  bool contains(BlockId block) const { return positions_[static_cast<std::size_t>(block)] >= 0; }
  std::int32_t size() const { return static_cast<std::int32_t>(heap_.size()); }
  /// The step that the block, which must be contained, was last used in.
  StepId last_used(BlockId block) const {
    return heap_[static_cast<std::size_t>(positions_[static_cast<std::size_t>(block)])].last_used;
  }

 private:
  struct Entry {
    StepId last_used = 0;
    std::int32_t prefix_blocks = 0;
    BlockId block = 0;
  };

  static bool before(const Entry& a, const Entry& b);
  void place(std::size_t position, const Entry& entry);
  void sift_up(std::size_t position, Entry entry);
  void sift_down(std::size_t position, Entry entry);

  std::vector<Entry> heap_;
  std::vector<std::int32_t> positions_;  ///< by block; -1 = not in the heap
};

}  // namespace pagoda::memory

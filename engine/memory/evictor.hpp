#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "engine/types.hpp"

namespace pagoda::memory {

/// The order in which cached blocks without an owner are evicted: least recently used first. Among blocks last used in
/// one step, the block with the longest prefix comes first, so that a chain loses its tail before its head. A binary
/// heap with an index of positions: O(log n), no allocation after construction.
class Evictor {
 public:
  explicit Evictor(std::int32_t num_blocks);

  void add(BlockId block, StepId last_used, std::int32_t prefix_blocks);
  void remove(BlockId block);
  /// Removes and returns the block to evict next. The evictor must not be empty.
  BlockId pop();

  bool contains(BlockId block) const { return positions_[static_cast<std::size_t>(block)] >= 0; }
  std::int32_t size() const { return static_cast<std::int32_t>(heap_.size()); }
  /// Returns the step in which the block was last used. The evictor must contain the block.
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
  void set_entry(std::size_t position, const Entry& entry);
  void sift_up(std::size_t position, Entry entry);
  void sift_down(std::size_t position, Entry entry);

  std::vector<Entry> heap_;
  std::vector<std::int32_t> positions_;  ///< by block; -1 = not in the heap
};

}  // namespace pagoda::memory

#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "engine/types.hpp"
#include "kernels/result.hpp"

namespace pagoda::memory {

/// Maps logical to physical blocks of one sequence: entry i holds the positions [i * block_size, (i + 1) * block_size).
/// The sequence owns the entries from first_owned() on; earlier blocks have left the sliding window. While the sequence
/// is swapped out, the ids belong to the host pool. The caller changes the references in the pools.
class BlockTable {
 public:
  std::int32_t size() const { return static_cast<std::int32_t>(blocks_.size()); }
  std::int32_t first_owned() const { return first_owned_; }
  std::int32_t num_owned() const { return size() - first_owned_; }
  BlockId operator[](std::int32_t index) const { return blocks_[static_cast<std::size_t>(index)]; }
  std::span<const BlockId> owned() const { return std::span(blocks_).subspan(static_cast<std::size_t>(first_owned_)); }

  void push_back(BlockId block) {
    first_changed_ = std::min(first_changed_, size());
    blocks_.push_back(block);
  }
  void replace(std::int32_t index, BlockId block) {
    first_changed_ = std::min(first_changed_, index);
    blocks_[static_cast<std::size_t>(index)] = block;
  }
  /// Gives up the oldest owned entry and returns its block. The stale id stays in the table.
  BlockId drop_first() {
    PAGODA_ASSERT(num_owned() > 0, "the table owns no block");
    return blocks_[static_cast<std::size_t>(first_owned_++)];
  }
  BlockId pop_back() {
    PAGODA_ASSERT(num_owned() > 0, "the table owns no block");
    const BlockId block = blocks_.back();
    blocks_.pop_back();
    first_changed_ = std::min(first_changed_, size());
    return block;
  }

  /// Returns the first entry that the worker's row does not have yet.
  std::int32_t first_changed() const { return first_changed_; }
  std::span<const BlockId> changed() const {
    return std::span(blocks_).subspan(static_cast<std::size_t>(first_changed_));
  }
  void mark_sent() { first_changed_ = size(); }
  /// Call when the row is gone or new, so that it needs the whole table.
  void mark_all_changed() { first_changed_ = 0; }

  static constexpr auto visit_fields(auto& self, auto&& visit) {
    return visit(self.blocks_, self.first_owned_, self.first_changed_);
  }
  bool is_valid() const {
    return 0 <= first_owned_ && first_owned_ <= size() && 0 <= first_changed_ && first_changed_ <= size();
  }

 private:
  std::vector<BlockId> blocks_;
  std::int32_t first_owned_ = 0;
  std::int32_t first_changed_ = 0;
};

}  // namespace pagoda::memory

#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "engine/types.hpp"
#include "kernels/result.hpp"

namespace pagoda::memory {

/// Token counts in blocks, for one block size and one sliding window.
///
/// Sliding window: a query at position p sees the positions (p - window, p]. A table keeps its logical indices:
/// position p always lies in logical block p / block_size. Blocks that no query can see any more are given back to the
/// pool, which hands out first what came in last, so the oldest block becomes the newest and the table wraps. Their
/// entries keep a stale (but valid) id: kernels must mask by the window. Blocks in the prefix cache stay findable as
/// usual, they are never overwritten while they are. A sequence that decodes one token a step, with up to two steps in
/// flight, owns at most ceil(window / block_size) + 1 blocks; a step of n tokens needs room for window + n - 1 tokens,
/// and for what the steps in flight run.
struct BlockLayout {
  std::int32_t block_size = 16;
  std::int32_t sliding_window = 0;  ///< 0 = none

  std::int32_t blocks_for(std::int32_t num_tokens) const { return (num_tokens + block_size - 1) / block_size; }

  /// The first logical block that a query at position `num_computed_tokens`, or a later one, can see.
  std::int32_t first_visible_block(std::int32_t num_computed_tokens) const {
    if (sliding_window == 0) return 0;
    return std::max(0, num_computed_tokens - sliding_window + 1) / block_size;
  }

  /// The most blocks that a sequence of `num_tokens` owns at once when its steps run up to `num_new_tokens` each.
  std::int32_t peak_blocks(std::int32_t num_tokens, std::int32_t num_new_tokens) const {
    const std::int32_t all = blocks_for(num_tokens);
    if (sliding_window == 0) return all;
    return std::min(all, blocks_for(sliding_window + num_new_tokens - 2) + 1);
  }
};

/// Logical to physical blocks of one sequence: entry i holds the positions [i * block_size, (i + 1) * block_size). The
/// sequence owns the entries from first_owned() on; those before have left the sliding window. Ids are of the host pool
/// while the sequence is swapped out. Changing references in the pools is the caller's part.
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
  /// Gives up the oldest owned entry; its id stays in the table, stale.
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

  /// What the worker's row does not have yet: the entries from first_changed() on.
  std::int32_t first_changed() const { return first_changed_; }
  std::span<const BlockId> changed() const {
    return std::span(blocks_).subspan(static_cast<std::size_t>(first_changed_));
  }
  void mark_sent() { first_changed_ = size(); }
  /// The row is gone or new: it needs the whole table.
  void mark_all_changed() { first_changed_ = 0; }

 private:
  std::vector<BlockId> blocks_;
  std::int32_t first_owned_ = 0;
  std::int32_t first_changed_ = 0;
};

}  // namespace pagoda::memory

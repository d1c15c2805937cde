#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "engine/types.hpp"
#include "kernels/result.hpp"

namespace pagoda::memory {

constexpr BlockId kNoBlock = -1;

/// The blocks of one pool (device or host). Each entry that a block table owns is one reference. A block without an
/// owner is either free, or kept by the prefix cache for its content.
class BlockPool {
 public:
  explicit BlockPool(std::int32_t num_blocks) : blocks_(static_cast<std::size_t>(num_blocks)) {
    free_.reserve(blocks_.size());
    for (BlockId id = num_blocks - 1; id >= 0; --id) free_.push_back(id);
  }
  ~BlockPool() { PAGODA_ASSERT(num_owned_ == 0, "a block was leaked: it still has owners when its pool goes"); }
  BlockPool(const BlockPool&) = delete;
  BlockPool& operator=(const BlockPool&) = delete;

  std::int32_t size() const { return static_cast<std::int32_t>(blocks_.size()); }
  std::int32_t num_free() const { return static_cast<std::int32_t>(free_.size()); }
  std::int32_t num_owned() const { return num_owned_; }
  std::int32_t num_owners(BlockId id) const { return at(id).num_owners; }
  const std::vector<BlockId>& free_list() const { return free_; }

  /// Returns a free block with one owner. There must be a free block.
  BlockId allocate() {
    PAGODA_ASSERT(!free_.empty(), "allocating from a pool without free blocks");
    const BlockId id = free_.back();
    free_.pop_back();
    at(id).is_free = false;
    adopt(id);
    return id;
  }

  /// Adds the first owner of a block that was kept without an owner.
  void adopt(BlockId id) {
    PAGODA_ASSERT(at(id).num_owners == 0 && !at(id).is_free, "only a kept block can be adopted");
    at(id).num_owners = 1;
    ++num_owned_;
  }

  void share(BlockId id) {
    PAGODA_ASSERT(at(id).num_owners > 0, "only an owned block can be shared");
    ++at(id).num_owners;
  }

  /// Removes one owner. Returns whether it was the last one: then the caller keeps the block, or passes it to
  /// put_free().
  bool release(BlockId id) {
    PAGODA_ASSERT(at(id).num_owners > 0, "a block without an owner was released");
    if (--at(id).num_owners > 0) return false;
    --num_owned_;
    return true;
  }

  void put_free(BlockId id) {
    PAGODA_ASSERT(at(id).num_owners == 0 && !at(id).is_free, "only a block without owner can become free, once");
    at(id).is_free = true;
    free_.push_back(id);
  }

  /// Returns the last step known to have read or written the block. Steps of its present owners are added when these
  /// release it.
  StepId last_touched(BlockId id) const { return at(id).last_touched; }
  void touch(BlockId id, StepId step) { at(id).last_touched = std::max(at(id).last_touched, step); }

  /// The state of a pool between two steps, without the owners of its blocks.
  struct Saved {
    std::vector<StepId> last_touched;  ///< last step by block
    std::vector<BlockId> free;         ///< the last one is handed out next

    static constexpr auto visit_fields(auto& self, auto&& visit) { return visit(self.last_touched, self.free); }
  };
  Saved save() const {
    Saved saved{{}, free_};
    for (const Block& block : blocks_) saved.last_touched.push_back(block.last_touched);
    return saved;
  }
  /// Returns whether a pool of this size can have been saved as `saved`, with these numbers of owners.
  bool can_load(const Saved& saved, std::span<const std::int32_t> num_owners) const {
    if (num_owners.size() != blocks_.size() || saved.last_touched.size() != blocks_.size()) return false;
    std::vector<bool> is_free(blocks_.size(), false);
    return std::ranges::all_of(saved.free, [&](BlockId id) {
      if (id < 0 || id >= size()) return false;
      const auto index = static_cast<std::size_t>(id);
      const bool is_twice = is_free[index];
      is_free[index] = true;
      return !is_twice && num_owners[index] == 0;
    });
  }
  /// Restores a saved state. The pool must be unused.
  void load(Saved saved, std::span<const std::int32_t> num_owners) {
    PAGODA_ASSERT(can_load(saved, num_owners), "the loaded state is not that of a pool");
    for (std::size_t i = 0; i < blocks_.size(); ++i) blocks_[i] = {num_owners[i], false, saved.last_touched[i]};
    for (const BlockId id : saved.free) at(id).is_free = true;
    saved.free.reserve(blocks_.size());
    free_ = std::move(saved.free);
    num_owned_ = static_cast<std::int32_t>(std::ranges::count_if(num_owners, [](auto count) { return count > 0; }));
  }

 private:
  struct Block {
    std::int32_t num_owners = 0;
    bool is_free = true;
    StepId last_touched = 0;
  };

  Block& at(BlockId id) { return blocks_[static_cast<std::size_t>(id)]; }
  const Block& at(BlockId id) const { return blocks_[static_cast<std::size_t>(id)]; }

  std::vector<Block> blocks_;
  std::vector<BlockId> free_;  ///< stack: the block freed last is warm and is handed out first
  std::int32_t num_owned_ = 0;
};

}  // namespace pagoda::memory

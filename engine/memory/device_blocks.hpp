#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/memory/block_pool.hpp"
#include "engine/memory/cache_events.hpp"
#include "engine/memory/evictor.hpp"
#include "engine/memory/prefix_cache.hpp"

namespace pagoda::memory {

/// The device pool with its prefix cache. A cached block that loses its last owner stays findable, and is evicted when
/// no free block is left.
class DeviceBlocks {
 public:
  DeviceBlocks(std::int32_t num_blocks, std::int32_t block_size, std::int32_t num_kv_groups);

  /// Reports the blocks that leave the prefix cache from now on to `events`; null = no reports.
  void report_to(CacheEvents* events) { events_ = events; }

  const BlockPool& pool() const { return pool_; }
  const PrefixCache& cache() const { return cache_; }
  /// See PrefixCache::remember().
  void remember(KvGroupId kv_group, std::span<const BlockId> prefix) { cache_.remember(kv_group, prefix); }
  std::int32_t size() const { return pool_.size(); }
  std::int32_t num_free() const { return pool_.num_free(); }
  std::int32_t num_evictable() const { return evictor_.size(); }
  /// Returns the number of blocks that allocate() can hand out.
  std::int32_t num_available() const { return num_free() + num_evictable(); }
  bool is_evictable(BlockId block) const { return evictor_.contains(block); }
  /// Returns whether the block has one owner and is not in the prefix cache: only such a block may be written.
  bool is_writable(BlockId block) const { return pool_.num_owners(block) == 1 && !cache_.contains(block); }

  /// Returns an empty block with one owner: a free block, or else the block that the evictor gives up first.
  BlockId allocate();
  /// Adds an owner to an owned or cached block.
  void share(BlockId block);
  /// Removes an owner that ran last in step `last_run`. `now` is the step being planned: the time of the LRU order.
  void release(BlockId block, StepId last_run, StepId now);
  void touch(BlockId block, StepId step) { pool_.touch(block, step); }
  /// See PrefixCache::insert. Returns false if the block is in the cache already, or another block of its content is.
  bool insert(BlockId block, KvGroupId kv_group, const BlockHash& hash, const BlockHash& parent,
              std::span<const TokenId> tokens, std::int32_t prefix_blocks, StepId computed_by);
  /// Removes the block from the prefix cache; its owners keep it.
  void remove_from_cache(BlockId block);

  /// Records that the first `num_slots` slots of an owned block hold a token, or will after a planned step.
  void fill(BlockId block, std::int32_t num_slots);
  std::int32_t filled_slots(BlockId block) const { return filled_[static_cast<std::size_t>(block)]; }
  std::int64_t used_slots() const { return used_slots_; }

  /// The state of the blocks between two steps, without their owners.
  struct Saved {
    struct Cached {
      BlockId block = 0;
      KvGroupId kv_group = 0;
      BlockHash hash;
      BlockHash parent;
      std::int32_t prefix_blocks = 0;
      StepId computed_by = 0;
      StepId last_used = 0;  ///< only of a block without owners
      TokenIds tokens;

      static constexpr auto visit_fields(auto& self, auto&& visit) {
        return visit(self.block, self.kv_group, self.hash, self.parent, self.prefix_blocks, self.computed_by,
                     self.last_used, self.tokens);
      }
    };
    BlockPool::Saved pool;
    std::vector<Cached> cached;

    static constexpr auto visit_fields(auto& self, auto&& visit) { return visit(self.pool, self.cached); }
  };
  Saved save() const;
  /// Restores a saved state, with these numbers of owners. The blocks must be unused. Returns false and changes nothing
  /// if the state is not possible.
  bool load(Saved saved, std::span<const std::int32_t> num_owners);

 private:
  void erase_from_cache(BlockId block);

  BlockPool pool_;
  PrefixCache cache_;
  Evictor evictor_;
  std::int32_t block_size_;
  std::int32_t num_kv_groups_;
  std::vector<std::int32_t> filled_;  ///< number of filled slots by block; 0 for a block without owners
  std::int64_t used_slots_ = 0;       ///< sum of filled_
  CacheEvents* events_ = nullptr;
};

}  // namespace pagoda::memory

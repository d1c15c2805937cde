#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/memory/block_pool.hpp"
#include "engine/memory/evictor.hpp"
#include "engine/memory/prefix_cache.hpp"

namespace pagoda::memory {

/// The device pool with its prefix cache: a block that loses its last owner stays findable when it is in the cache, and
/// is taken for something else when no free block is left.
class DeviceBlocks {
 public:
  DeviceBlocks(std::int32_t num_blocks, std::int32_t block_size);

  const BlockPool& pool() const { return pool_; }
  const PrefixCache& cache() const { return cache_; }
  /// Remembers a prefix: PrefixCache::remember().
  void remember(std::span<const BlockId> prefix) { cache_.remember(prefix); }
  std::int32_t size() const { return pool_.size(); }
  std::int32_t num_free() const { return pool_.num_free(); }
  std::int32_t num_evictable() const { return evictor_.size(); }
  /// Blocks that allocate() can hand out.
  std::int32_t num_available() const { return num_free() + num_evictable(); }
  bool is_evictable(BlockId block) const { return evictor_.contains(block); }
  /// One owner, and nobody can find it: only such a block may be written.
  bool is_writable(BlockId block) const { return pool_.num_owners(block) == 1 && !cache_.contains(block); }

  /// An empty block with one owner: a free one, else the first that the evictor gives up.
  BlockId allocate();
  /// One more owner of an owned or cached block.
  void share(BlockId block);
  /// One owner less, who last ran in step `last_run`. `now` is the step being planned, the time of the LRU order.
  void release(BlockId block, StepId last_run, StepId now);
  void touch(BlockId block, StepId step) { pool_.touch(block, step); }
  /// See PrefixCache::insert. False when it, or another block of its content, is findable already.
  bool insert(BlockId block, const BlockHash& hash, const BlockHash& parent, std::span<const TokenId> tokens,
              std::int32_t prefix_blocks, StepId computed_by);
  /// Nobody finds the block any more; its owners keep it.
  void remove_from_cache(BlockId block);

  /// The first `num_slots` slots of an owned block hold a token, or will after a planned step.
  void fill(BlockId block, std::int32_t num_slots);
  std::int32_t filled_slots(BlockId block) const { return filled_[static_cast<std::size_t>(block)]; }
  std::int64_t used_slots() const { return used_slots_; }

  /// The blocks between two steps, but for their owners.
  struct Saved {
    struct Cached {
      BlockId block = 0;
      BlockHash hash;
      BlockHash parent;
      std::int32_t prefix_blocks = 0;
      StepId computed_by = 0;
      StepId last_used = 0;  ///< of a block without owners
      TokenIds tokens;

      static constexpr auto visit_fields(auto& self, auto&& visit) {
        return visit(self.block, self.hash, self.parent, self.prefix_blocks, self.computed_by, self.last_used,
                     self.tokens);
      }
    };
    BlockPool::Saved pool;
    std::vector<Cached> cached;

    static constexpr auto visit_fields(auto& self, auto&& visit) { return visit(self.pool, self.cached); }
  };
  Saved save() const;
  /// Makes blocks that were never used those that were saved, with so many owners each. False, and nothing happens,
  /// when they cannot have been.
  bool load(Saved saved, std::span<const std::int32_t> num_owners);

 private:
  BlockPool pool_;
  PrefixCache cache_;
  Evictor evictor_;
  std::int32_t block_size_;
  std::vector<std::int32_t> filled_;  ///< by block; 0 when nobody owns it
  std::int64_t used_slots_ = 0;       ///< sum of filled_
};

}  // namespace pagoda::memory

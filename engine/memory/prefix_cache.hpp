#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "engine/memory/block_hash.hpp"
#include "engine/memory/block_pool.hpp"
#include "engine/types.hpp"

namespace pagoda::memory {

/// Finds the full blocks of a KV group by the hash of their prefix, from the step on that will compute them. It does
/// not know owners. All operations are O(1). All memory is allocated at construction: a block has at most one entry, a
/// hash at most one block in each KV group.
class PrefixCache {
 public:
  PrefixCache(std::int32_t num_blocks, std::int32_t block_size, std::int32_t num_kv_groups = 1);

  /// Returns the block that holds the KV of the group for `tokens` behind `parent`, or kNoBlock. Compares parent and
  /// tokens as well as the hash.
  BlockId find(KvGroupId kv_group, const BlockHash& hash, const BlockHash& parent,
               std::span<const TokenId> tokens) const;

  /// Makes a block findable. Returns false and changes nothing if the hash is in the cache: the first block of equal
  /// content stays the shared one. `prefix_blocks`: number of blocks up to and including this one. `computed_by`: the
  /// step that computes it.
  bool insert(BlockId block, KvGroupId kv_group, const BlockHash& hash, const BlockHash& parent,
              std::span<const TokenId> tokens, std::int32_t prefix_blocks, StepId computed_by);
  void erase(BlockId block);

  /// Remembers the blocks of a prefix, from the first one on. remembered() returns the part that is still findable: it
  /// ends before the first block that was erased meanwhile.
  void remember(KvGroupId kv_group, std::span<const BlockId> prefix) {
    remembered_[static_cast<std::size_t>(kv_group)].assign(prefix.begin(), prefix.end());
  }
  std::span<const BlockId> remembered(KvGroupId kv_group) const {
    return remembered_[static_cast<std::size_t>(kv_group)];
  }

  bool contains(BlockId block) const { return at(block).prefix_blocks > 0; }
  KvGroupId kv_group(BlockId block) const { return at(block).kv_group; }
  std::int32_t prefix_blocks(BlockId block) const { return at(block).prefix_blocks; }
  StepId computed_by(BlockId block) const { return at(block).computed_by; }
  const BlockHash& hash(BlockId block) const { return at(block).hash; }
  const BlockHash& parent(BlockId block) const { return at(block).parent; }
  std::span<const TokenId> tokens(BlockId block) const;
  std::int32_t size() const { return size_; }

 private:
  struct Entry {
    BlockHash hash;
    BlockHash parent;
    std::int32_t prefix_blocks = 0;  ///< 0 = the block is not in the cache
    KvGroupId kv_group = 0;
    BlockId next = kNoBlock;  ///< next block in its bucket
    StepId computed_by = 0;
  };

  Entry& at(BlockId block) { return entries_[static_cast<std::size_t>(block)]; }
  const Entry& at(BlockId block) const { return entries_[static_cast<std::size_t>(block)]; }
  std::size_t bucket(KvGroupId kv_group, const BlockHash& hash) const {
    return (hash.low + static_cast<std::uint64_t>(kv_group)) & (buckets_.size() - 1);
  }
  BlockId find_hash(KvGroupId kv_group, const BlockHash& hash) const;

  std::int32_t block_size_;
  std::int32_t size_ = 0;
  std::vector<Entry> entries_;                    ///< entry by block
  std::vector<BlockId> buckets_;                  ///< first block of each chain; the size is a power of two
  std::vector<TokenId> tokens_;                   ///< [num_blocks, block_size]
  std::vector<std::vector<BlockId>> remembered_;  ///< by KV group
};

}  // namespace pagoda::memory

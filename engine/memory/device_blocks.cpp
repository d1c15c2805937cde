#include "engine/memory/device_blocks.hpp"

#include <utility>

namespace pagoda::memory {

DeviceBlocks::DeviceBlocks(std::int32_t num_blocks, std::int32_t block_size, std::int32_t num_kv_groups)
    : pool_(num_blocks),
      cache_(num_blocks, block_size, num_kv_groups),
      evictor_(num_blocks),
      block_size_(block_size),
      num_kv_groups_(num_kv_groups),
      filled_(static_cast<std::size_t>(num_blocks), 0) {}

BlockId DeviceBlocks::allocate() {
  if (pool_.num_free() > 0) return pool_.allocate();
  const BlockId block = evictor_.pop();
  erase_from_cache(block);
  pool_.adopt(block);
  return block;
}

void DeviceBlocks::share(BlockId block) {
  if (!evictor_.contains(block)) return pool_.share(block);
  evictor_.remove(block);
  pool_.adopt(block);
  fill(block, block_size_);
}

void DeviceBlocks::release(BlockId block, StepId last_run, StepId now) {
  pool_.touch(block, last_run);
  if (!pool_.release(block)) return;
  used_slots_ -= filled_[static_cast<std::size_t>(block)];
  filled_[static_cast<std::size_t>(block)] = 0;
  if (cache_.contains(block)) {
    evictor_.add(block, now, cache_.prefix_blocks(block));
  } else {
    pool_.put_free(block);
  }
}

bool DeviceBlocks::insert(BlockId block, KvGroupId kv_group, const BlockHash& hash, const BlockHash& parent,
                          std::span<const TokenId> tokens, std::int32_t prefix_blocks, StepId computed_by) {
  return !cache_.contains(block) && cache_.insert(block, kv_group, hash, parent, tokens, prefix_blocks, computed_by);
}

void DeviceBlocks::erase_from_cache(BlockId block) {
  if (events_ != nullptr) events_->removed(block, cache_.hash(block));
  cache_.erase(block);
}

void DeviceBlocks::remove_from_cache(BlockId block) {
  erase_from_cache(block);
  if (!evictor_.contains(block)) return;
  evictor_.remove(block);
  pool_.put_free(block);
}

DeviceBlocks::Saved DeviceBlocks::save() const {
  Saved saved{pool_.save(), {}};
  for (BlockId block = 0; block < size(); ++block) {
    if (!cache_.contains(block)) continue;
    const auto tokens = cache_.tokens(block);
    saved.cached.push_back({block, cache_.kv_group(block), cache_.hash(block), cache_.parent(block),
                            cache_.prefix_blocks(block), cache_.computed_by(block),
                            is_evictable(block) ? evictor_.last_used(block) : 0,
                            TokenIds(tokens.begin(), tokens.end())});
  }
  return saved;
}

bool DeviceBlocks::load(Saved saved, std::span<const std::int32_t> num_owners) {
  if (!pool_.can_load(saved.pool, num_owners)) return false;
  PrefixCache cache(size(), block_size_, num_kv_groups_);
  Evictor evictor(size());
  for (const Saved::Cached& entry : saved.cached) {
    const bool is_possible = entry.block >= 0 && entry.block < size() && !cache.contains(entry.block) &&
                             entry.kv_group >= 0 && entry.kv_group < num_kv_groups_ && entry.prefix_blocks > 0 &&
                             std::ssize(entry.tokens) == block_size_;
    if (!is_possible || !cache.insert(entry.block, entry.kv_group, entry.hash, entry.parent, entry.tokens,
                                      entry.prefix_blocks, entry.computed_by)) {
      return false;
    }
    if (num_owners[static_cast<std::size_t>(entry.block)] == 0) {
      evictor.add(entry.block, entry.last_used, entry.prefix_blocks);
    }
  }
  pool_.load(std::move(saved.pool), num_owners);
  cache_ = std::move(cache);
  evictor_ = std::move(evictor);
  return true;
}

void DeviceBlocks::fill(BlockId block, std::int32_t num_slots) {
  std::int32_t& filled = filled_[static_cast<std::size_t>(block)];
  if (num_slots <= filled) return;
  used_slots_ += num_slots - filled;
  filled = num_slots;
}

}  // namespace pagoda::memory

#include "engine/memory/prefix_cache.hpp"

#include <algorithm>
#include <bit>

#include "kernels/result.hpp"

namespace pagoda::memory {

PrefixCache::PrefixCache(std::int32_t num_blocks, std::int32_t block_size, std::int32_t num_kv_groups)
    : block_size_(block_size),
      entries_(static_cast<std::size_t>(num_blocks)),
      buckets_(std::bit_ceil(std::max<std::size_t>(entries_.size(), 1)), kNoBlock),
      tokens_(entries_.size() * static_cast<std::size_t>(block_size)),
      remembered_(static_cast<std::size_t>(num_kv_groups)) {}

std::span<const TokenId> PrefixCache::tokens(BlockId block) const {
  const auto size = static_cast<std::size_t>(block_size_);
  return {tokens_.data() + static_cast<std::size_t>(block) * size, size};
}

BlockId PrefixCache::find_hash(KvGroupId kv_group, const BlockHash& hash) const {
  BlockId block = buckets_[bucket(kv_group, hash)];
  while (block != kNoBlock && (at(block).hash != hash || at(block).kv_group != kv_group)) block = at(block).next;
  return block;
}

BlockId PrefixCache::find(KvGroupId kv_group, const BlockHash& hash, const BlockHash& parent,
                          std::span<const TokenId> tokens) const {
  const BlockId block = find_hash(kv_group, hash);
  if (block == kNoBlock || at(block).parent != parent) return kNoBlock;
  return std::ranges::equal(this->tokens(block), tokens) ? block : kNoBlock;
}

bool PrefixCache::insert(BlockId block, KvGroupId kv_group, const BlockHash& hash, const BlockHash& parent,
                         std::span<const TokenId> tokens, std::int32_t prefix_blocks, StepId computed_by) {
  PAGODA_ASSERT(!contains(block) && prefix_blocks > 0, "a block has one place in the prefix cache");
  PAGODA_ASSERT(std::ssize(tokens) == block_size_, "only full blocks are shared");
  if (find_hash(kv_group, hash) != kNoBlock) return false;
  BlockId& first = buckets_[bucket(kv_group, hash)];
  at(block) = Entry{hash, parent, prefix_blocks, kv_group, first, computed_by};
  first = block;
  std::ranges::copy(tokens, tokens_.begin() + static_cast<std::ptrdiff_t>(block) * block_size_);
  ++size_;
  return true;
}

void PrefixCache::erase(BlockId block) {
  PAGODA_ASSERT(contains(block), "the block is not in the prefix cache");
  const auto place = static_cast<std::size_t>(prefix_blocks(block)) - 1;
  auto& remembered = remembered_[static_cast<std::size_t>(kv_group(block))];
  if (place < remembered.size() && remembered[place] == block) remembered.resize(place);
  BlockId* link = &buckets_[bucket(kv_group(block), at(block).hash)];
  while (*link != block) link = &at(*link).next;
  *link = at(block).next;
  at(block) = Entry{};
  --size_;
}

}  // namespace pagoda::memory

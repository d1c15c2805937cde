// Writes and reads the state of the memory between two steps. Values that follow from the block tables are not saved
// but counted again: owners, used slots, reserves. So these values are consistent in every state that loads.

#include <algorithm>
#include <map>
#include <ranges>
#include <set>
#include <utility>

#include "engine/memory/sequence_store.hpp"

namespace pagoda::memory {

void SequenceStore::save(Encoder& out) const {
  PAGODA_ASSERT(cache_plan_ == nullptr, "the state is saved between steps");
  std::vector<SequenceId> groups;
  for (const auto& [id, group] : groups_) groups.push_back(id);
  std::ranges::sort(groups);
  out.put(groups.size());
  for (const SequenceId id : groups) {
    const Group& group = groups_.at(id);
    out.put(group.num_host_blocks);
    out.put(group.sequences.size());
    for (const Sequence* sequence : group.sequences) out.put(*sequence);
  }
  out.put(device_.save());
  out.put(host_.save());
}

KvContent SequenceStore::content() const {
  KvContent content;
  for (const auto& [id, sequence] : sequences_) {
    KvContent::Held held{id, sequence.on_host, sequence.num_scheduled_tokens, {}};
    for (const KvBlocks& own : sequence.kv) {
      const BlockTable& table = own.table;
      auto& blocks = held.blocks.emplace_back();
      for (std::int32_t i = 0; i < table.size(); ++i) blocks.push_back(i < table.first_owned() ? kNoBlock : table[i]);
    }
    content.held.push_back(std::move(held));
  }
  std::ranges::sort(content.held, {}, &KvContent::Held::sequence);
  // Follow each chain from a hash without a successor back to its first block. The blocks of all KV groups for the same
  // tokens have one hash.
  using Hash = std::pair<std::uint64_t, std::uint64_t>;
  const PrefixCache& cache = device_.cache();
  std::map<Hash, std::vector<BlockId>> by_hash;
  std::set<Hash> parents;
  std::int32_t num_cached = 0;
  for (BlockId block = 0; block < device_.size(); ++block) {
    if (!cache.contains(block)) continue;
    auto& blocks = by_hash[{cache.hash(block).low, cache.hash(block).high}];
    blocks.resize(layout().groups.size(), kNoBlock);
    blocks[static_cast<std::size_t>(cache.kv_group(block))] = block;
    parents.emplace(cache.parent(block).low, cache.parent(block).high);
    ++num_cached;
  }
  std::set<BlockId> reached;
  for (auto leaf = by_hash.begin(); leaf != by_hash.end(); ++leaf) {
    if (parents.contains(leaf->first)) continue;
    std::vector<const std::vector<BlockId>*> chain;
    BlockId any = kNoBlock;  // a block of the first link of the chain
    for (auto link = leaf; link != by_hash.end();) {
      chain.push_back(&link->second);
      any = *std::ranges::max_element(link->second);
      if (cache.prefix_blocks(any) == 1) break;
      link = by_hash.find({cache.parent(any).low, cache.parent(any).high});
    }
    if (cache.prefix_blocks(any) > 1) continue;
    KvContent::Prefix prefix;
    prefix.blocks.resize(layout().groups.size());
    for (const auto* blocks : std::views::reverse(chain)) {
      const auto tokens = cache.tokens(*std::ranges::max_element(*blocks));
      prefix.tokens.insert(prefix.tokens.end(), tokens.begin(), tokens.end());
      for (std::size_t group = 0; group < blocks->size(); ++group) {
        prefix.blocks[group].push_back((*blocks)[group]);
        if ((*blocks)[group] != kNoBlock) reached.insert((*blocks)[group]);
      }
    }
    content.cached.push_back(std::move(prefix));
  }
  content.num_headless = num_cached - static_cast<std::int32_t>(reached.size());
  return content;
}

bool SequenceStore::is_possible(const Sequence& sequence) const {
  if (sequence.prompt == nullptr || std::ssize(sequence.kv) != layout().num_groups()) return false;
  const auto is_hashed = [&](const BlockKey& key) { return 0 <= key.index && key.index < sequence.num_hashed_blocks; };
  const auto is_possible_table = [&](const KvBlocks& blocks) {
    return blocks.table.is_valid() && blocks.table.size() == sequence.table_size() && blocks.reserved_blocks >= 0 &&
           std::ranges::all_of(blocks.keys, is_hashed) && std::ranges::all_of(blocks.duplicates, is_hashed);
  };
  const std::int64_t num_slots = std::int64_t{sequence.table_size()} * block_size_;
  return std::ranges::all_of(sequence.kv, is_possible_table) && 0 <= sequence.num_computed_tokens &&
         sequence.num_computed_tokens <= sequence.num_scheduled_tokens && sequence.num_scheduled_tokens <= num_slots &&
         0 <= sequence.num_hashed_blocks && sequence.num_hashed_blocks <= sequence.table_size();
}

bool SequenceStore::load_sequences(Decoder& in) {
  std::size_t num_groups = 0;
  if (!in.get(num_groups)) return false;
  for (; num_groups > 0; --num_groups) {
    Group group;
    std::size_t num_sequences = 0;
    if (!in.get(group.num_host_blocks) || !in.get(num_sequences) || num_sequences == 0) return false;
    SequenceId id = 0;
    for (; num_sequences > 0; --num_sequences) {
      Sequence sequence;
      if (!in.get(sequence) || !is_possible(sequence)) return false;
      if (!group.sequences.empty() && sequence.group != id) return false;
      id = sequence.group;
      for (const KvBlocks& blocks : sequence.kv) num_reserved_ += blocks.reserved_blocks;
      const auto [entry, is_new] = sequences_.try_emplace(sequence.id, std::move(sequence));
      if (!is_new) return false;
      group.sequences.push_back(&entry->second);
    }
    if (!groups_.emplace(id, std::move(group)).second) return false;
  }
  return true;
}

/// Returns false if a table contains a block that is in no pool.
bool SequenceStore::count_owners(std::vector<std::int32_t>& device, std::vector<std::int32_t>& host) const {
  for (const auto& [id, sequence] : sequences_) {
    auto& owners = sequence.on_host ? host : device;
    for (const KvBlocks& blocks : sequence.kv) {
      for (const BlockId block : blocks.table.owned()) {
        if (sequence.on_host && block == kNoBlock) continue;
        if (block < 0 || block >= std::ssize(owners)) return false;
        ++owners[static_cast<std::size_t>(block)];
      }
    }
  }
  return true;
}

bool SequenceStore::load(Decoder& in) {
  PAGODA_ASSERT(sequences_.empty(), "only a store that was never used is loaded");
  std::vector<std::int32_t> device_owners(static_cast<std::size_t>(device_.size()), 0);
  std::vector<std::int32_t> host_owners(static_cast<std::size_t>(host_.size()), 0);
  DeviceBlocks::Saved device;
  BlockPool::Saved host;
  const bool is_whole = load_sequences(in) && count_owners(device_owners, host_owners) && in.get(device) &&
                        in.get(host) && host_.can_load(host, host_owners) &&
                        device_.load(std::move(device), device_owners);
  if (!is_whole) {
    groups_.clear();
    sequences_.clear();
    return false;
  }
  host_.load(std::move(host), host_owners);
  for (BlockId block = 0; block < device_.size(); ++block) {
    const StepId step = device_.cache().contains(block) ? device_.cache().computed_by(block) : 0;
    if (step > 0) uncomputed_.emplace_back(step, block);
  }
  std::ranges::sort(uncomputed_);
  for (const auto& [id, sequence] : sequences_) {
    if (!sequence.on_host) fill(sequence, 0);
  }
  return true;
}

}  // namespace pagoda::memory

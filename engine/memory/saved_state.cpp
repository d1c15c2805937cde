// Writes and reads the state of the memory between two steps. Values that follow from the block tables are not saved
// but counted again: owners, used slots, reserves. So these values are consistent in every state that loads.

#include <algorithm>
#include <map>
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
    const BlockTable& table = sequence.table;
    KvContent::Held held{id, sequence.on_host, sequence.num_scheduled_tokens, {}};
    for (std::int32_t i = 0; i < table.size(); ++i) {
      held.blocks.push_back(i < table.first_owned() ? kNoBlock : table[i]);
    }
    content.held.push_back(std::move(held));
  }
  std::ranges::sort(content.held, {}, &KvContent::Held::sequence);
  // Follow each chain from a cached block without a successor back to its first block.
  const PrefixCache& cache = device_.cache();
  std::map<std::pair<std::uint64_t, std::uint64_t>, BlockId> by_hash;
  std::set<std::pair<std::uint64_t, std::uint64_t>> parents;
  for (BlockId block = 0; block < device_.size(); ++block) {
    if (!cache.contains(block)) continue;
    by_hash.emplace(std::pair(cache.hash(block).low, cache.hash(block).high), block);
    parents.emplace(cache.parent(block).low, cache.parent(block).high);
  }
  std::set<BlockId> reached;
  for (const auto& [hash, leaf] : by_hash) {
    if (parents.contains(hash)) continue;
    std::vector<BlockId> blocks{leaf};
    while (cache.prefix_blocks(blocks.back()) > 1) {
      const BlockHash& parent = cache.parent(blocks.back());
      const auto found = by_hash.find({parent.low, parent.high});
      if (found == by_hash.end()) break;
      blocks.push_back(found->second);
    }
    if (cache.prefix_blocks(blocks.back()) > 1) continue;
    std::ranges::reverse(blocks);
    KvContent::Prefix prefix{{}, blocks};
    for (const BlockId block : blocks) {
      const auto tokens = cache.tokens(block);
      prefix.tokens.insert(prefix.tokens.end(), tokens.begin(), tokens.end());
    }
    reached.insert(blocks.begin(), blocks.end());
    content.cached.push_back(std::move(prefix));
  }
  content.num_headless = static_cast<std::int32_t>(by_hash.size() - reached.size());
  return content;
}

bool SequenceStore::is_possible(const Sequence& sequence) const {
  if (sequence.prompt == nullptr || !sequence.table.is_valid()) return false;
  const std::int64_t num_slots = std::int64_t{sequence.table.size()} * kv_.block_size;
  const auto is_hashed = [&](const BlockKey& key) { return 0 <= key.index && key.index < sequence.num_hashed_blocks; };
  return 0 <= sequence.num_computed_tokens && sequence.num_computed_tokens <= sequence.num_scheduled_tokens &&
         sequence.num_scheduled_tokens <= num_slots && 0 <= sequence.num_hashed_blocks &&
         sequence.num_hashed_blocks <= sequence.table.size() && sequence.reserved_blocks >= 0 &&
         std::ranges::all_of(sequence.keys, is_hashed) && std::ranges::all_of(sequence.duplicates, is_hashed);
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
      num_reserved_ += sequence.reserved_blocks;
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
    for (const BlockId block : sequence.table.owned()) {
      if (sequence.on_host && block == kNoBlock) continue;
      if (block < 0 || block >= std::ssize(owners)) return false;
      ++owners[static_cast<std::size_t>(block)];
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

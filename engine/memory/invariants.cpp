#include "engine/memory/invariants.hpp"

#include <algorithm>
#include <vector>

namespace pagoda::memory {

namespace {

using Counts = std::vector<std::int32_t>;
using Broken = std::optional<std::string>;

/// Blocks of one pool. Invariants are checked after every plan of a simulation, so sets of blocks are flags.
class BlockSet {
 public:
  explicit BlockSet(std::int32_t pool_size) : flags_(static_cast<std::size_t>(pool_size), false) {}

  /// Returns whether the block was not in the set.
  bool insert(BlockId block) {
    const bool is_new = !contains(block);
    flags_[static_cast<std::size_t>(block)] = true;
    return is_new;
  }
  bool contains(BlockId block) const { return flags_[static_cast<std::size_t>(block)]; }

 private:
  std::vector<bool> flags_;
};

Counts count_owners(const SequenceStore& store, bool on_host) {
  Counts owners(static_cast<std::size_t>(on_host ? store.host().size() : store.device().size()), 0);
  for (const auto& [id, sequence] : store.sequences()) {
    if (sequence.on_host != on_host) continue;
    for (const KvBlocks& blocks : sequence.kv)
      for (const BlockId block : blocks.table.owned())
        if (block != kNoBlock) ++owners[static_cast<std::size_t>(block)];
  }
  return owners;
}

Broken check_references(const BlockPool& pool, const Counts& owners, const std::string& name) {
  std::int32_t num_owned = 0;
  for (BlockId block = 0; block < pool.size(); ++block) {
    const std::int32_t counted = owners[static_cast<std::size_t>(block)];
    if (pool.num_owners(block) != counted)
      return name + " block " + std::to_string(block) + " has " + std::to_string(pool.num_owners(block)) +
             " references but " + std::to_string(counted) + " table entries own it";
    num_owned += counted > 0;
  }
  if (num_owned != pool.num_owned()) return name + " pool miscounts its owned blocks";
  BlockSet seen(pool.size());
  for (const BlockId block : pool.free_list()) {
    if (!seen.insert(block)) return name + " block " + std::to_string(block) + " is twice in the free list";
    if (owners[static_cast<std::size_t>(block)] > 0)
      return name + " block " + std::to_string(block) + " is free and owned";
  }
  return std::nullopt;
}

/// Checks that every block is exactly one of free, evictable and owned, and that only cached blocks are kept without an
/// owner.
Broken check_states(const SequenceStore& store, const Counts& device_owners) {
  const DeviceBlocks& device = store.device();
  BlockSet free(device.size());
  for (const BlockId block : device.pool().free_list()) free.insert(block);
  std::int32_t num_cached = 0;
  for (BlockId block = 0; block < device.size(); ++block) {
    const bool is_owned = device_owners[static_cast<std::size_t>(block)] > 0;
    const bool is_cached = device.cache().contains(block);
    const char* problem = nullptr;
    if (free.contains(block) + is_owned + device.is_evictable(block) != 1)
      problem = " is not exactly one of free, evictable and owned";
    else if (device.is_evictable(block) && !is_cached)
      problem = " is evictable but not cached";
    else if (free.contains(block) && is_cached)
      problem = " is free but can be found by its hash";
    if (problem != nullptr) return "device block " + std::to_string(block) + problem;
    num_cached += is_cached;
  }
  if (num_cached != device.cache().size()) return "the prefix cache miscounts its blocks";
  if (store.host().num_free() + store.host().num_owned() != store.host().size())
    return "a host block is neither free nor owned";
  return std::nullopt;
}

Broken check_cache(const SequenceStore& store) {
  const PrefixCache& cache = store.device().cache();
  for (BlockId block = 0; block < store.device().size(); ++block) {
    if (!cache.contains(block)) continue;
    const BlockHash hash = chain_hash(store.config().prefix_hash_key, cache.parent(block), cache.tokens(block));
    if (hash != cache.hash(block)) return "cached block " + std::to_string(block) + " has another hash than its tokens";
    if (cache.find(cache.kv_group(block), hash, cache.parent(block), cache.tokens(block)) != block)
      return "cached block " + std::to_string(block) + " is not found by its hash";
  }
  return std::nullopt;
}

/// Checks the hash chain of the sequence's own tokens against its stored hash and the cached blocks in its table.
Broken check_chain(const SequenceStore& store, const Sequence& sequence, const std::string& name) {
  if (!store.config().enable_prefix_caching) return std::nullopt;
  const std::int32_t size = store.layout().block_size();
  if (sequence.num_hashed_blocks * size > std::min(sequence.num_scheduled_tokens, sequence.num_known_tokens()))
    return name + " has shared a block that no step computes";
  BlockHash parent = sequence.root;
  for (std::int32_t i = 0; i < sequence.num_hashed_blocks; ++i) {
    TokenIds tokens;
    for (std::int32_t k = 0; k < size; ++k) tokens.push_back(sequence.token(i * size + k));
    const BlockHash hash = chain_hash(store.config().prefix_hash_key, parent, tokens);
    const PrefixCache& cache = store.device().cache();
    for (std::size_t group = 0; group < sequence.kv.size(); ++group) {
      const BlockTable& table = sequence.kv[group].table;
      if (i < table.first_owned() || sequence.on_host || !cache.contains(table[i])) continue;
      if (cache.hash(table[i]) != hash) return name + " holds a cached block of another prefix at " + std::to_string(i);
      if (cache.kv_group(table[i]) != static_cast<KvGroupId>(group))
        return name + " holds a cached block of another KV group at " + std::to_string(i);
    }
    parent = hash;
  }
  if (parent != sequence.hash) return name + " carries another hash than its tokens have";
  return std::nullopt;
}

/// Checks that a sequence on the host knows the hash of each block that it left on the device.
Broken check_shared_kept(const Sequence& sequence, const KvBlocks& blocks, const std::string& name) {
  for (std::int32_t i = blocks.table.first_owned(); i < blocks.table.size(); ++i) {
    if (blocks.table[i] != kNoBlock) continue;
    if (!sequence.on_host) return name + " has no block at " + std::to_string(i);
    if (std::ranges::find(blocks.keys, i, &BlockKey::index) == blocks.keys.end())
      return name + " has no key for the block that stays on the device at " + std::to_string(i);
  }
  return std::nullopt;
}

/// Checks that the tables have equal sizes, and that no block is in them twice.
Broken check_tables(const SequenceStore& store, const Sequence& sequence, const std::string& name) {
  BlockSet held(sequence.on_host ? store.host().size() : store.device().size());
  for (const KvBlocks& blocks : sequence.kv) {
    if (blocks.table.size() != sequence.table_size()) return name + " has tables of different sizes";
    for (const BlockId block : blocks.table.owned())
      if (block != kNoBlock && !held.insert(block)) return name + " holds a block twice";
    if (Broken broken = check_shared_kept(sequence, blocks, name)) return broken;
  }
  return std::nullopt;
}

Broken check_sequences(const SequenceStore& store) {
  std::int32_t num_reserved = 0;
  for (const auto& [id, sequence] : store.sequences()) {
    const std::string name = "sequence " + std::to_string(id);
    for (const KvBlocks& blocks : sequence.kv) num_reserved += blocks.reserved_blocks;
    if (sequence.id != id) return name + " is filed under a wrong id";
    if (sequence.num_computed_tokens > sequence.num_scheduled_tokens)
      return name + " has more tokens computed than were planned";
    if (std::ssize(sequence.kv) != store.layout().num_groups()) return name + " has not a table for each KV group";
    if (sequence.table_size() < store.layout().table_size(sequence.num_scheduled_tokens))
      return name + " has tokens without a block";
    if (Broken broken = check_tables(store, sequence, name)) return broken;
    if (Broken broken = check_chain(store, sequence, name)) return broken;
  }
  if (num_reserved != store.num_reserved()) return "the reserved blocks are miscounted";
  return std::nullopt;
}

/// Checks that each sequence is in exactly one group, each group on one side, and no host block in two groups.
Broken check_groups(const SequenceStore& store) {
  std::size_t num_grouped = 0;
  BlockSet host_blocks(store.host().size());
  for (const auto& [id, group] : store.groups()) {
    const std::string name = "group " + std::to_string(id);
    if (group.sequences.empty()) return name + " has no sequence";
    std::vector<const Sequence*> members(group.sequences.begin(), group.sequences.end());
    std::ranges::sort(members);
    if (std::ranges::adjacent_find(members) != members.end()) return name + " lists a sequence twice";
    num_grouped += group.sequences.size();
    BlockSet own(store.host().size());
    std::int32_t num_own = 0;
    for (const Sequence* sequence : group.sequences) {
      if (sequence->group != id) return name + " lists a sequence of another group";
      if (sequence->on_host != group.sequences.front()->on_host) return name + " is half swapped out";
      if (!sequence->on_host) continue;
      for (const KvBlocks& blocks : sequence->kv) {
        for (const BlockId block : blocks.table.owned()) {
          if (block == kNoBlock || !own.insert(block)) continue;
          ++num_own;
          if (!host_blocks.insert(block)) return name + " shares a host block with another group";
        }
      }
    }
    if (num_own != group.num_host_blocks) return name + " miscounts its host blocks";
  }
  if (num_grouped != store.sequences().size()) return "a sequence is in no group";
  return std::nullopt;
}

/// Checks the counts of filled slots: a block counts once, by the owner that fills most of it.
Broken check_slots(const SequenceStore& store) {
  Counts filled(static_cast<std::size_t>(store.device().size()), 0);
  for (const auto& [id, sequence] : store.sequences()) {
    if (sequence.on_host) continue;
    for (const KvBlocks& blocks : sequence.kv) {
      for (std::int32_t i = blocks.table.first_owned(); i < blocks.table.size(); ++i) {
        const std::int32_t slots = sequence.num_scheduled_tokens - i * store.layout().block_size();
        std::int32_t& most = filled[static_cast<std::size_t>(blocks.table[i])];
        most = std::max(most, std::clamp(slots, 0, store.layout().block_size()));
      }
    }
  }
  std::int64_t used = 0;
  for (BlockId block = 0; block < store.device().size(); ++block) {
    const std::int32_t slots = filled[static_cast<std::size_t>(block)];
    if (store.device().filled_slots(block) != slots)
      return "device block " + std::to_string(block) + " has " + std::to_string(slots) + " slots filled, not " +
             std::to_string(store.device().filled_slots(block));
    used += slots;
  }
  if (used != store.device().used_slots()) return "the used slots are miscounted";
  return std::nullopt;
}

}  // namespace

Broken find_broken_invariant(const SequenceStore& store) {
  const Counts device_owners = count_owners(store, false);
  if (Broken broken = check_references(store.device().pool(), device_owners, "device")) return broken;
  if (Broken broken = check_references(store.host(), count_owners(store, true), "host")) return broken;
  if (Broken broken = check_states(store, device_owners)) return broken;
  if (Broken broken = check_cache(store)) return broken;
  if (Broken broken = check_groups(store)) return broken;
  if (Broken broken = check_sequences(store)) return broken;
  return check_slots(store);
}

}  // namespace pagoda::memory

#include <algorithm>
#include <utility>

#include "engine/memory/sequence_store.hpp"
#include "kernels/result.hpp"

// Swapping moves a whole group between the pools. A block that several of its sequences share moves once and stays
// shared. Blocks with other owners stay on the device, and are found by their hash when the group comes back. The same
// lookup finds blocks that went to the host and are still in the prefix cache.

namespace pagoda::memory {
namespace {

constexpr BlockId kSharedKept = -2;  // value of moved_to_

}  // namespace

template <class Visit>
void SequenceStore::visit_owned(std::span<const Group* const> groups, Visit visit) {
  const auto each_entry = [&](auto&& take) {
    for (const Group* group : groups) {
      for (const Sequence* sequence : group->sequences) {
        for (const KvBlocks& blocks : sequence->kv)
          for (const BlockId block : blocks.table.owned()) take(block);
      }
    }
  };
  each_entry([&](BlockId block) { ++leaving_device_[static_cast<std::size_t>(block)]; });
  each_entry([&](BlockId block) {
    const std::int32_t owners = std::exchange(leaving_device_[static_cast<std::size_t>(block)], 0);
    if (owners > 0) visit(block, owners);
  });
}

template <class Visit>
void SequenceStore::visit_owned(const Group& group, Visit visit) {
  const Group* const alone = &group;
  visit_owned(std::span(&alone, 1), std::move(visit));
}

std::int32_t SequenceStore::count_owned(const Group& group) {
  std::int32_t count = 0;
  visit_owned(group, [&](BlockId, std::int32_t) { ++count; });
  return count;
}

std::int32_t SequenceStore::count_freed(std::span<const Group* const> groups) {
  std::int32_t count = 0;
  visit_owned(groups, [&](BlockId block, std::int32_t owners) { count += device_.pool().num_owners(block) == owners; });
  return count;
}

std::int32_t SequenceStore::mark_shared_kept(const Group& group) {
  std::int32_t num_moved = 0;
  visit_owned(group, [&](BlockId block, std::int32_t owners) {
    ++num_moved;
    const bool is_held_elsewhere = device_.pool().num_owners(block) > owners && device_.cache().contains(block);
    if (is_held_elsewhere) moved_to_[static_cast<std::size_t>(block)] = kSharedKept;
  });
  // A fork that has not run yet may hold a block that is full for its parent, but not for itself.
  for (const Sequence* sequence : group.sequences) {
    for (const KvBlocks& blocks : sequence->kv) {
      const std::int32_t first = std::max(blocks.table.first_owned(), sequence->num_hashed_blocks);
      for (std::int32_t i = first; i < blocks.table.size(); ++i)
        moved_to_[static_cast<std::size_t>(blocks.table[i])] = kNoBlock;
    }
  }
  visit_owned(group, [&](BlockId block, std::int32_t) {
    num_moved -= moved_to_[static_cast<std::size_t>(block)] == kSharedKept;
  });
  return num_moved;
}

RecoveryNeed SequenceStore::count_recovery(const Group& group) {
  RecoveryNeed need;
  need.num_blocks = mark_shared_kept(group);
  for (const Sequence* sequence : group.sequences) {
    const std::int32_t found = longest_prefix(sequence->table_size(), [&](KvGroupId kv_group, std::int32_t index) {
      const BlockTable& table = sequence->kv[static_cast<std::size_t>(kv_group)].table;
      return index >= table.first_owned() && moved_to_[static_cast<std::size_t>(table[index])] == kSharedKept;
    });
    need.num_tokens += sequence->num_scheduled_tokens - std::int64_t{found} * block_size_;
  }
  visit_owned(group, [&](BlockId block, std::int32_t) { moved_to_[static_cast<std::size_t>(block)] = kNoBlock; });
  return need;
}

bool SequenceStore::swap_out(Group& group) {
  for (const Sequence* sequence : group.sequences)
    PAGODA_ASSERT(!sequence->on_host, "only a group on the device can be swapped out");
  for (Sequence* sequence : group.sequences) drop_lookahead(*sequence, 0);
  std::vector<BlockId> blocks;
  visit_owned(group, [&](BlockId block, std::int32_t) { blocks.push_back(block); });
  const bool fits = mark_shared_kept(group) <= host_.num_free();
  if (fits) {
    for (Sequence* sequence : group.sequences) {
      for (KvBlocks& kv : sequence->kv) move_out(group, *sequence, kv);
      sequence->on_host = true;
    }
  }
  for (const BlockId block : blocks) moved_to_[static_cast<std::size_t>(block)] = kNoBlock;
  return fits;
}

void SequenceStore::move_out(Group& group, const Sequence& sequence, KvBlocks& blocks) {
  BlockTable& table = blocks.table;
  for (std::int32_t i = table.first_owned(); i < table.size(); ++i) {
    const BlockId block = table[i];
    if (i < sequence.num_hashed_blocks && device_.cache().contains(block))
      blocks.keys.push_back(BlockKey{i, device_.cache().hash(block), device_.cache().parent(block)});
    BlockId& target = moved_to_[static_cast<std::size_t>(block)];
    if (target == kNoBlock) {
      target = host_.allocate();
      ++group.num_host_blocks;
      const StepId last = stamp(device_.pool().last_touched(block), host_.last_touched(target), sequence.last_run);
      cache_plan_->swap_out.push_back(BlockMove{block, target, last});
    } else if (target != kSharedKept) {
      host_.share(target);
    }
    table.replace(i, target == kSharedKept ? kNoBlock : target);
    release_device(block, sequence.last_run);
  }
  set_reserved(blocks, 0);
}

SwapInNeed SequenceStore::find_swapped(Group& group) {
  SwapInNeed need;
  std::vector<BlockId> found;
  std::vector<BlockId> copied;
  const auto find_blocks = [&](const Sequence& sequence, KvGroupId kv_group, KvBlocks& blocks) {
    for (BlockKey& key : blocks.keys) key.found = kNoBlock;
    auto key = blocks.keys.begin();
    for (std::int32_t i = blocks.table.first_owned(); i < blocks.table.size(); ++i) {
      const BlockId on_host = blocks.table[i];
      while (key != blocks.keys.end() && key->index < i) ++key;
      if (key != blocks.keys.end() && key->index == i) {
        const BlockId block = device_.cache().find(kv_group, key->hash, key->parent, block_tokens(sequence, i));
        if (block != kNoBlock && is_computed(block)) {
          found.push_back(key->found = block);
          continue;
        }
        if (on_host == kNoBlock) (block == kNoBlock ? need.lost : need.waits) = true;
      }
      if (on_host != kNoBlock) copied.push_back(on_host);
    }
  };
  for (Sequence* sequence : group.sequences) {
    for (KvGroupId kv_group = 0; kv_group < layout().num_groups(); ++kv_group)
      find_blocks(*sequence, kv_group, sequence->kv[static_cast<std::size_t>(kv_group)]);
  }
  const auto count_distinct = [](std::vector<BlockId>& blocks) {
    std::ranges::sort(blocks);
    blocks.erase(std::unique(blocks.begin(), blocks.end()), blocks.end());
    return static_cast<std::int32_t>(blocks.size());
  };
  need.num_copied = count_distinct(copied);
  need.num_found = count_distinct(found);
  for (const BlockId block : found) need.num_reactivated += device_.is_evictable(block);
  return need;
}

void SequenceStore::swap_in(Group& group) {
  // Take all found blocks first, because fetching a block may evict one of them.
  for (const Sequence* sequence : group.sequences) {
    for (const KvBlocks& blocks : sequence->kv)
      for (const BlockKey& key : blocks.keys)
        if (key.found != kNoBlock) device_.share(key.found);
  }
  const std::size_t first_move = cache_plan_->swap_in.size();
  for (Sequence* sequence : group.sequences) {
    for (KvGroupId kv_group = 0; kv_group < layout().num_groups(); ++kv_group) move_in(group, *sequence, kv_group);
    sequence->on_host = false;
    fill(*sequence, 0);
  }
  for (std::size_t i = first_move; i < cache_plan_->swap_in.size(); ++i)
    moved_to_[static_cast<std::size_t>(cache_plan_->swap_in[i].from)] = kNoBlock;
}

void SequenceStore::move_in(Group& group, Sequence& sequence, KvGroupId kv_group) {
  KvBlocks& blocks = sequence.kv[static_cast<std::size_t>(kv_group)];
  BlockTable& table = blocks.table;
  auto key = blocks.keys.begin();
  for (std::int32_t i = table.first_owned(); i < table.size(); ++i) {
    const BlockId block = table[i];
    while (key != blocks.keys.end() && key->index < i) ++key;
    const bool has_key = key != blocks.keys.end() && key->index == i;
    if (has_key && key->found != kNoBlock) {
      table.replace(i, key->found);
      release_host(group, block);
      continue;
    }
    BlockId& target = moved_to_[static_cast<std::size_t>(block)];
    if (target == kNoBlock) {
      target = device_.allocate();
      const StepId last = stamp(host_.last_touched(block), device_.pool().last_touched(target), 0);
      cache_plan_->swap_in.push_back(BlockMove{block, target, last});
    } else {
      device_.share(target);
    }
    table.replace(i, target);
    release_host(group, block);
    // The content is there before the step computes anything.
    if (has_key && !device_.cache().contains(target) &&
        !insert_in_cache(sequence, target, kv_group, *key, block_tokens(sequence, i), step_))
      blocks.duplicates.push_back(*key);
  }
  table.mark_all_changed();
  blocks.keys.clear();
}

}  // namespace pagoda::memory

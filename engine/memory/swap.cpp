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
void SequenceStore::visit_owned(const Group& group, Visit visit) {
  for (const Sequence* sequence : group.sequences)
    for (const BlockId block : sequence->table.owned()) ++leaving_device_[static_cast<std::size_t>(block)];
  for (const Sequence* sequence : group.sequences) {
    for (const BlockId block : sequence->table.owned()) {
      const std::int32_t owners = std::exchange(leaving_device_[static_cast<std::size_t>(block)], 0);
      if (owners > 0) visit(block, owners);
    }
  }
}

std::int32_t SequenceStore::count_owned(const Group& group) {
  std::int32_t count = 0;
  visit_owned(group, [&](BlockId, std::int32_t) { ++count; });
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
  for (const Sequence* sequence : group.sequences)
    for (std::int32_t i = std::max(sequence->table.first_owned(), sequence->num_hashed_blocks);
         i < sequence->table.size(); ++i)
      moved_to_[static_cast<std::size_t>(sequence->table[i])] = kNoBlock;
  visit_owned(group, [&](BlockId block, std::int32_t) {
    num_moved -= moved_to_[static_cast<std::size_t>(block)] == kSharedKept;
  });
  return num_moved;
}

RecoveryNeed SequenceStore::count_recovery(const Group& group) {
  RecoveryNeed need;
  need.num_blocks = mark_shared_kept(group);
  for (const Sequence* sequence : group.sequences) {
    const BlockTable& table = sequence->table;
    std::int32_t found = 0;
    while (table.first_owned() == 0 && found < table.size() &&
           moved_to_[static_cast<std::size_t>(table[found])] == kSharedKept)
      ++found;
    need.num_tokens += sequence->num_scheduled_tokens - std::int64_t{found} * kv_.block_size;
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
    for (Sequence* sequence : group.sequences) move_out(group, *sequence);
  }
  for (const BlockId block : blocks) moved_to_[static_cast<std::size_t>(block)] = kNoBlock;
  return fits;
}

void SequenceStore::move_out(Group& group, Sequence& sequence) {
  BlockTable& table = sequence.table;
  for (std::int32_t i = table.first_owned(); i < table.size(); ++i) {
    const BlockId block = table[i];
    if (i < sequence.num_hashed_blocks && device_.cache().contains(block))
      sequence.keys.push_back(BlockKey{i, device_.cache().hash(block), device_.cache().parent(block)});
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
  set_reserved(sequence, 0);
  sequence.on_host = true;
}

SwapInNeed SequenceStore::find_swapped(Group& group) {
  SwapInNeed need;
  std::vector<BlockId> found;
  std::vector<BlockId> copied;
  for (Sequence* sequence : group.sequences) {
    for (BlockKey& key : sequence->keys) key.found = kNoBlock;
    auto key = sequence->keys.begin();
    for (std::int32_t i = sequence->table.first_owned(); i < sequence->table.size(); ++i) {
      const BlockId on_host = sequence->table[i];
      while (key != sequence->keys.end() && key->index < i) ++key;
      if (key != sequence->keys.end() && key->index == i) {
        const BlockId block = device_.cache().find(key->hash, key->parent, block_tokens(*sequence, i));
        if (block != kNoBlock && is_computed(block)) {
          found.push_back(key->found = block);
          continue;
        }
        if (on_host == kNoBlock) (block == kNoBlock ? need.lost : need.waits) = true;
      }
      if (on_host != kNoBlock) copied.push_back(on_host);
    }
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
  for (Sequence* sequence : group.sequences) {
    for (const BlockKey& key : sequence->keys)
      if (key.found != kNoBlock) device_.share(key.found);
  }
  const std::size_t first_move = cache_plan_->swap_in.size();
  for (Sequence* sequence : group.sequences) {
    move_in(group, *sequence);
    fill(*sequence, 0);
  }
  for (std::size_t i = first_move; i < cache_plan_->swap_in.size(); ++i)
    moved_to_[static_cast<std::size_t>(cache_plan_->swap_in[i].from)] = kNoBlock;
}

void SequenceStore::move_in(Group& group, Sequence& sequence) {
  BlockTable& table = sequence.table;
  auto key = sequence.keys.begin();
  for (std::int32_t i = table.first_owned(); i < table.size(); ++i) {
    const BlockId block = table[i];
    while (key != sequence.keys.end() && key->index < i) ++key;
    const bool has_key = key != sequence.keys.end() && key->index == i;
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
        !insert_in_cache(target, *key, block_tokens(sequence, i), step_))
      sequence.duplicates.push_back(*key);
  }
  table.mark_all_changed();
  sequence.on_host = false;
  sequence.keys.clear();
}

}  // namespace pagoda::memory

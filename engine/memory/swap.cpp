#include "engine/memory/sequence_store.hpp"
#include "kernels/result.hpp"

// Swapping moves a whole group between the pools. A block that several of its sequences share moves once and stays
// shared. Blocks that it shares with other groups stay with those; it takes a copy along.

namespace pagoda::memory {

bool SequenceStore::swap_out(Group& group) {
  for (const Sequence* sequence : group.sequences)
    PAGODA_ASSERT(!sequence->on_host, "only a group on the device can be swapped out");
  for (Sequence* sequence : group.sequences) drop_lookahead(*sequence, 0);
  if (count_owned(group) > host_.num_free()) return false;
  const std::size_t first_move = cache_plan_->swap_out.size();
  for (Sequence* sequence : group.sequences) {
    BlockTable& table = sequence->table;
    for (std::int32_t i = table.first_owned(); i < table.size(); ++i) {
      const BlockId block = table[i];
      BlockId& target = moved_to_[static_cast<std::size_t>(block)];
      if (target == kNoBlock) {
        target = host_.allocate();
        ++group.num_host_blocks;
        const StepId last = stamp(device_.pool().last_touched(block), host_.last_touched(target), sequence->last_run);
        cache_plan_->swap_out.push_back(BlockMove{block, target, last});
      } else {
        host_.share(target);
      }
      table.replace(i, target);
      release_device(block, sequence->last_run);
    }
    set_reserved(*sequence, 0);
    sequence->on_host = true;
    // Its new device blocks will have to be offered to the prefix cache again.
    sequence->num_hashed_blocks = 0;
    sequence->hash = sequence->root;
  }
  for (std::size_t i = first_move; i < cache_plan_->swap_out.size(); ++i)
    moved_to_[static_cast<std::size_t>(cache_plan_->swap_out[i].from)] = kNoBlock;
  return true;
}

void SequenceStore::swap_in(Group& group) {
  const std::size_t first_move = cache_plan_->swap_in.size();
  for (Sequence* sequence : group.sequences) {
    BlockTable& table = sequence->table;
    for (std::int32_t i = table.first_owned(); i < table.size(); ++i) {
      const BlockId block = table[i];
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
    }
    table.mark_all_changed();
    sequence->on_host = false;
    fill(*sequence, 0);
  }
  for (std::size_t i = first_move; i < cache_plan_->swap_in.size(); ++i)
    moved_to_[static_cast<std::size_t>(cache_plan_->swap_in[i].from)] = kNoBlock;
}

}  // namespace pagoda::memory

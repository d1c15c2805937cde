#include "engine/memory/evictor.hpp"

#include "kernels/result.hpp"

namespace pagoda::memory {

Evictor::Evictor(std::int32_t num_blocks) : positions_(static_cast<std::size_t>(num_blocks), -1) {
  heap_.reserve(positions_.size());
}

bool Evictor::before(const Entry& a, const Entry& b) {
  if (a.last_used != b.last_used) return a.last_used < b.last_used;
  if (a.prefix_blocks != b.prefix_blocks) return a.prefix_blocks > b.prefix_blocks;
  return a.block < b.block;
}

void Evictor::set_entry(std::size_t position, const Entry& entry) {
  heap_[position] = entry;
  positions_[static_cast<std::size_t>(entry.block)] = static_cast<std::int32_t>(position);
}

void Evictor::sift_up(std::size_t position, Entry entry) {
  while (position > 0) {
    const std::size_t parent = (position - 1) / 2;
    if (!before(entry, heap_[parent])) break;
    set_entry(position, heap_[parent]);
    position = parent;
  }
  set_entry(position, entry);
}

void Evictor::sift_down(std::size_t position, Entry entry) {
  for (;;) {
    std::size_t child = 2 * position + 1;
    if (child >= heap_.size()) break;
    if (child + 1 < heap_.size() && before(heap_[child + 1], heap_[child])) ++child;
    if (!before(heap_[child], entry)) break;
    set_entry(position, heap_[child]);
    position = child;
  }
  set_entry(position, entry);
}

void Evictor::add(BlockId block, StepId last_used, std::int32_t prefix_blocks) {
  PAGODA_ASSERT(!contains(block), "a block stands once in the evictor");
  heap_.emplace_back();
  sift_up(heap_.size() - 1, Entry{last_used, prefix_blocks, block});
}

void Evictor::remove(BlockId block) {
  PAGODA_ASSERT(contains(block), "the block is not in the evictor");
  const auto position = static_cast<std::size_t>(positions_[static_cast<std::size_t>(block)]);
  positions_[static_cast<std::size_t>(block)] = -1;
  const Entry last = heap_.back();
  heap_.pop_back();
  if (position == heap_.size()) return;
  if (position > 0 && before(last, heap_[(position - 1) / 2])) {
    sift_up(position, last);
  } else {
    sift_down(position, last);
  }
}

BlockId Evictor::pop() {
  PAGODA_ASSERT(!heap_.empty(), "nothing can be evicted");
  const BlockId block = heap_.front().block;
  remove(block);
  return block;
}

}  // namespace pagoda::memory

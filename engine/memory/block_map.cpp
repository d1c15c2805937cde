#include "engine/memory/block_map.hpp"

#include <algorithm>
#include <cstddef>
#include <vector>

namespace pagoda::memory {
namespace {

/// Number of blocks of a cell that are looked up in the prefix cache.
constexpr std::int32_t kLooksPerCell = 8;

std::vector<const Sequence*> by_id(const SequenceStore& store) {
  std::vector<const Sequence*> all;
  all.reserve(store.sequences().size());
  for (const auto& [id, sequence] : store.sequences()) all.push_back(&sequence);
  std::ranges::sort(all, {}, &Sequence::id);
  return all;
}

void mark_owners(const SequenceStore& store, view::BlockMap& map) {
  const auto sequences = by_id(store);
  map.num_owners = std::ssize(sequences);
  for (const Sequence* sequence : sequences) {
    const bool is_named = map.owners.size() < view::kMaxOwners;
    const auto owner = is_named ? static_cast<std::int32_t>(map.owners.size()) : -1;
    if (is_named) {
      map.owners.push_back(
          {sequence->id, sequence->request, sequence->on_host, sequence->num_owned(), sequence->num_scheduled_tokens});
    }
    if (sequence->on_host) continue;
    for (const KvBlocks& blocks : sequence->kv) {
      for (const BlockId block : blocks.table.owned()) {
        view::Cell& cell = map.cells[static_cast<std::size_t>(block / map.blocks_per_cell)];
        if (cell.owner < 0) cell.owner = owner;
        ++cell.references;
      }
    }
  }
}

void mark_cached(const PrefixCache& cache, view::BlockMap& map) {
  const std::int32_t stride = std::max(1, map.blocks_per_cell / kLooksPerCell);
  for (std::size_t i = 0; i < map.cells.size(); ++i) {
    const auto first = static_cast<std::int32_t>(i) * map.blocks_per_cell;
    const std::int32_t end = std::min(first + map.blocks_per_cell, map.num_blocks);
    for (BlockId block = first; block < end && !map.cells[i].is_cached; block += stride) {
      map.cells[i].is_cached = cache.contains(block);
    }
  }
}

}  // namespace

view::BlockMap map_blocks(const SequenceStore& store) {
  view::BlockMap map;
  map.block_size = store.layout().block_size();
  map.num_blocks = store.device().size();
  map.blocks_per_cell = (map.num_blocks + view::kMaxCells - 1) / view::kMaxCells;
  map.cells.resize(static_cast<std::size_t>((map.num_blocks + map.blocks_per_cell - 1) / map.blocks_per_cell));
  mark_owners(store, map);
  mark_cached(store.device().cache(), map);
  return map;
}

}  // namespace pagoda::memory

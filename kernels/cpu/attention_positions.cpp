#include "kernels/cpu/attention_positions.hpp"

#include <algorithm>
#include <cstddef>

namespace pagoda::kernels {
namespace {

void gather_scales(const KvCacheView& cache, const std::int32_t* table, std::int64_t kv_head, std::int64_t next_end,
                   Positions& positions) {
  positions.key_scales.fill(0.0F);
  positions.value_scales.fill(0.0F);
  for (std::int64_t position = positions.first; position < positions.end;) {
    const std::int64_t block = position / cache.block_size;
    const std::int64_t offset = position % cache.block_size;
    const std::int64_t count = std::min(cache.block_size - offset, positions.end - position);
    const std::int64_t row = kv_head * cache.block_size + offset;
    const std::int64_t place = position - positions.start;
    std::copy_n(cache.key_scales(table[block]) + row, count, positions.key_scales.begin() + place);
    std::copy_n(cache.value_scales(table[block]) + row, count, positions.value_scales.begin() + place);
    position += count;
  }
  for (std::int64_t position = positions.end; position < next_end;) {
    const std::int32_t block = table[position / cache.block_size];
    const std::int64_t offset = position % cache.block_size;
    const std::int64_t row = kv_head * cache.block_size + offset;
    __builtin_prefetch(cache.key_scales(block) + row, 0, 3);
    __builtin_prefetch(cache.value_scales(block) + row, 0, 3);
    position += cache.block_size - offset;
  }
}

}  // namespace

Positions positions_at(const KvCacheView& cache, const std::int32_t* table, std::int64_t kv_head,
                       const PositionsOfTile& wanted) {
  Positions positions;
  positions.start = wanted.start;
  positions.first = std::max(wanted.first, wanted.start);
  positions.end = std::min(wanted.end, wanted.start + wanted.tile);
  const std::int64_t row_bytes = cache.head_dim * static_cast<std::int64_t>(size_of(cache.dtype));
  const std::int64_t head_bytes = kv_head * cache.block_size * row_bytes;
  std::int64_t block = positions.first / cache.block_size;
  std::int64_t offset = positions.first % cache.block_size;
  const std::int64_t first_place = positions.first - wanted.start;
  const std::int64_t num_places = wanted.tile + kLookahead;
  // What follows in the next group is prefetched, too.
  const std::int64_t end_place = std::min(wanted.end_seen - wanted.start, num_places);
  if (cache.dtype == DType::int8) {
    gather_scales(cache, table, kv_head, std::min(wanted.end_seen, positions.end + wanted.tile), positions);
  }
  std::int64_t place = first_place;
  for (; place < end_place; ++block, offset = 0) {
    const std::byte* keys = cache.key_block(table[block]) + head_bytes;
    const std::byte* values = cache.value_block(table[block]) + head_bytes;
    for (; offset < cache.block_size && place < end_place; ++offset, ++place) {
      positions.keys[static_cast<std::size_t>(place)] = keys + offset * row_bytes;
      positions.values[static_cast<std::size_t>(place)] = values + offset * row_bytes;
    }
  }
  for (auto* rows : {&positions.keys, &positions.values}) {
    const void* inside = (*rows)[static_cast<std::size_t>(first_place)];
    std::fill_n(rows->begin(), first_place, inside);
    std::fill(rows->begin() + place, rows->begin() + num_places, inside);
  }
  return positions;
}

}  // namespace pagoda::kernels

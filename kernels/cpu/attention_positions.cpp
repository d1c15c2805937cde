#include "kernels/cpu/attention_positions.hpp"

#include <algorithm>
#include <cstddef>

namespace pagoda::kernels {
namespace {

/// Consecutive positions within one block of the cache.
struct BlockPart {
  std::int32_t block = 0;
  std::int64_t offset = 0;      ///< index of the first position within the block
  std::int64_t tile_index = 0;  ///< index of the first position within the tile
  std::int64_t count = 0;
};

void for_each_block_part(const KvCacheView& cache, const std::int32_t* table, const Positions& positions,
                         const auto& body) {
  for (std::int64_t position = positions.first; position < positions.end;) {
    const std::int64_t offset = position % cache.block_size;
    const std::int64_t count = std::min(cache.block_size - offset, positions.end - position);
    body(BlockPart{table[position / cache.block_size], offset, position - positions.start, count});
    position += count;
  }
}

}  // namespace

Positions positions_at(const KvCacheView& cache, const std::int32_t* table, const PositionsOfTile& wanted) {
  Positions positions;
  positions.start = wanted.start;
  positions.first = std::max(wanted.first, wanted.start);
  positions.end = std::min(wanted.end, wanted.start + wanted.tile);
  positions.tile = wanted.tile;
  const void** keys = positions.rows.data();
  const void** values = keys + wanted.tile;
  const std::int64_t row_bytes = cache.head_dim * static_cast<std::int64_t>(size_of(cache.dtype));
  const std::int64_t head_row = wanted.kv_head * cache.block_size;
  for_each_block_part(cache, table, positions, [&](const BlockPart& part) {
    const std::int64_t row = head_row + part.offset;
    const std::byte* key = cache.key_block(part.block) + row * row_bytes;
    const std::byte* value = cache.value_block(part.block) + row * row_bytes;
    for (std::int64_t i = part.tile_index; i < part.tile_index + part.count;
         ++i, key += row_bytes, value += row_bytes) {
      keys[i] = key;
      values[i] = value;
    }
    if (cache.dtype != DType::int8) return;
    __builtin_prefetch(cache.key_scales(part.block) + row, 0, 3);
    __builtin_prefetch(cache.value_scales(part.block) + row, 0, 3);
  });
  const std::int64_t first_index = positions.first - positions.start;
  const std::int64_t end_index = positions.end - positions.start;
  for (const void** rows : {keys, values}) {
    std::fill_n(rows, first_index, rows[first_index]);
    std::fill(rows + end_index, rows + wanted.tile, rows[first_index]);
  }
  return positions;
}

Scales scales_at(const KvCacheView& cache, const std::int32_t* table, std::int64_t kv_head,
                 const Positions& positions) {
  Scales scales;
  scales.keys.fill(0.0F);
  scales.values.fill(0.0F);
  for_each_block_part(cache, table, positions, [&](const BlockPart& part) {
    const std::int64_t row = kv_head * cache.block_size + part.offset;
    std::copy_n(cache.key_scales(part.block) + row, part.count, scales.keys.begin() + part.tile_index);
    std::copy_n(cache.value_scales(part.block) + row, part.count, scales.values.begin() + part.tile_index);
  });
  return scales;
}

}  // namespace pagoda::kernels

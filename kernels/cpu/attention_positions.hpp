#pragma once

#include <array>
#include <cstdint>

#include "kernels/ops.hpp"

namespace pagoda::kernels {

/// The largest score_tile of any instruction set.
constexpr std::int64_t kMaxScoreTile = 64;

/// The positions of one tile that some row sees, and where the keys and values of one head lie.
struct Positions {
  std::int64_t start = 0;  ///< the tile's first position
  std::int64_t first = 0;  ///< seen are [first, end)
  std::int64_t end = 0;
  std::int64_t tile = 0;  ///< its length
  /// The keys of the whole tile and then its values; those that are not seen repeat one that is.
  std::array<const void*, 2 * kMaxScoreTile> rows;

  const void* const* keys() const { return rows.data(); }
  const void* const* values() const { return rows.data() + tile; }
};

struct PositionsOfTile {
  std::int64_t kv_head = 0;
  std::int64_t start = 0;  ///< the tile's first position
  std::int64_t tile = 0;   ///< its length
  std::int64_t first = 0;  ///< [first, end), which may reach beyond the tile, are seen
  std::int64_t end = 0;
};

/// table: the sequence's blocks. With int8, scales are prefetched: they lie apart from the values.
Positions positions_at(const KvCacheView& cache, const std::int32_t* table, const PositionsOfTile& wanted);

/// Of int8 keys and values of a tile; zero where a position is not seen.
struct Scales {
  std::array<float, kMaxScoreTile> keys;
  std::array<float, kMaxScoreTile> values;
};

Scales scales_at(const KvCacheView& cache, const std::int32_t* table, std::int64_t kv_head, const Positions& positions);

}  // namespace pagoda::kernels

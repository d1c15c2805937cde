#pragma once

#include <array>
#include <cstdint>

#include "kernels/ops.hpp"

namespace pagoda::kernels {

/// Upper bound of score_tile over all instruction sets, and of kMatrixPositions.
constexpr std::int64_t kMaxScoreTile = 64;

/// The positions of one tile that at least one row sees, and the addresses of the keys and values of one head.
struct Positions {
  std::int64_t start = 0;  ///< the tile's first position
  std::int64_t first = 0;  ///< rows see the positions [first, end)
  std::int64_t end = 0;
  std::int64_t tile = 0;  ///< length of the tile
  /// Addresses of the keys of the whole tile, then of its values. Positions that no row sees repeat the address of
  /// position `first`.
  std::array<const void*, 2 * kMaxScoreTile> rows;

  const void* const* keys() const { return rows.data(); }
  const void* const* values() const { return rows.data() + tile; }
};

struct PositionsOfTile {
  std::int64_t kv_head = 0;
  std::int64_t start = 0;  ///< the tile's first position
  std::int64_t tile = 0;   ///< length of the tile
  std::int64_t first = 0;  ///< rows see the positions [first, end), which may reach beyond the tile
  std::int64_t end = 0;
};

/// Returns the positions of a tile. `table` is the sequence's block table. With int8 it also prefetches the scales,
/// which are stored apart from the values.
Positions positions_at(const KvCacheView& cache, const std::int32_t* table, const PositionsOfTile& wanted);

/// Scales of the int8 keys and values of a tile; zero for positions that no row sees.
struct Scales {
  std::array<float, kMaxScoreTile> keys;
  std::array<float, kMaxScoreTile> values;
};

Scales scales_at(const KvCacheView& cache, const std::int32_t* table, std::int64_t kv_head, const Positions& positions);

}  // namespace pagoda::kernels

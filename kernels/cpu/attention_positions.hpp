#pragma once

#include <array>
#include <cstdint>

#include "kernels/ops.hpp"

namespace pagoda::kernels {

/// The largest score_tile of any instruction set.
constexpr std::int64_t kMostScoreTile = 64;

/// How many positions ahead keys and values are prefetched, into the second-level cache: a tile, so that memory is also
/// read while the softmax computes. At least linear_panel.
constexpr std::int64_t kLookahead = 64;

/// The positions of one tile that some row sees, and where their keys and values lie.
struct Positions {
  std::int64_t start = 0;  ///< the tile's first position
  std::int64_t first = 0;  ///< seen are [first, end)
  std::int64_t end = 0;
  /// Of the whole tile and kLookahead positions behind it; those that are not seen repeat one that is.
  std::array<const void*, kMostScoreTile + kLookahead> keys;
  std::array<const void*, kMostScoreTile + kLookahead> values;
  /// Of the whole tile, with int8; those that are not seen are zero.
  std::array<float, kMostScoreTile> key_scales;
  std::array<float, kMostScoreTile> value_scales;
};

struct PositionsOfTile {
  std::int64_t start = 0;     ///< the tile's first position
  std::int64_t tile = 0;      ///< its length
  std::int64_t first = 0;     ///< [first, end), which may reach beyond the tile, are seen and wanted
  std::int64_t end = 0;       ///< <= end_seen
  std::int64_t end_seen = 0;  ///< positions from `end` up to here come later and are prefetched
};

/// table: the sequence's blocks. With int8, scales of the next tile are prefetched: they lie apart from the values.
Positions positions_at(const KvCacheView& cache, const std::int32_t* table, std::int64_t kv_head,
                       const PositionsOfTile& wanted);

}  // namespace pagoda::kernels

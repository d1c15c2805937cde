// Fits scales, multipliers and offsets of weights in an affine format (see quantized_kernels.hpp), with one lane for
// each row, without fused multiply-adds as in fit_grids.inl.hpp. Included once per instruction set;
// PAGODA_SIMD names the namespace.

#include <algorithm>
#include <cstdint>

#include "kernels/cpu/quantized_kernels.hpp"
#include "kernels/cpu/simd/fit_grids.inl.hpp"
#include "kernels/quantized.hpp"

namespace pagoda::kernels::PAGODA_SIMD {
namespace {

/// Multiplier and offset of the columns that share them, in units of the group's scale.
struct AffineMap {
  Vec multiplier;
  Vec offset;
  Vec error;        ///< sum of squared errors
  Vec next_offset;  ///< least-squares offset for the integers of this one
};

/// A block of columns that share a multiplier and an offset, for some scale of its group.
class AffineFit {
 public:
  AffineFit(const Group& block, Vec scale, Vec most)
      : block_(block),
        scale_(scale),
        inverse_(divide_or_zero(set1(1.0F), scale)),
        most_(most),
        columns_(set1(static_cast<float>(block.columns))) {}

  /// Returns the map nearest to a grid. The multiplier is rounded up, unless it is at most a quarter above an integer:
  /// a range that is too narrow costs more than one that is too wide.
  AffineMap near(const Grid& grid) const {
    const Vec half = set1(0.5F);
    const Vec multiplier = min(max(round(min(grid.scale * inverse_, limit()) + set1(0.25F)), set1(1.0F)), most_);
    const Vec middle = grid.min + grid.scale * block_.highest * half;
    return with_errors(multiplier, whole(middle * inverse_ - multiplier * block_.highest * half, multiplier));
  }

  /// Returns the better of `map` and the same with the next offset.
  AffineMap refined(const AffineMap& map) const {
    const AffineMap next = with_errors(map.multiplier, map.next_offset);
    return {map.multiplier, select_less(next.error, map.error, next.offset, map.offset), min(next.error, map.error),
            next.next_offset};
  }

 private:
  static Vec limit() { return set1(1000.0F); }
  static Vec limited(Vec x) { return min(max(x, zero() - limit()), limit()); }

  /// Returns the nearest offset with which all values are bytes.
  Vec whole(Vec offset, Vec multiplier) const {
    return min(max(round(limited(offset)), set1(-128.0F)), set1(127.0F) - multiplier * block_.highest);
  }

  AffineMap with_errors(Vec multiplier, Vec offset) const {
    const Vec inverse_multiplier = set1(1.0F) / multiplier;
    Vec error = zero();
    Vec rest = zero();
    for (std::int64_t k = 0; k < block_.columns; ++k) {
      const Vec w = block_.at(k);
      const Vec units = limited(w * inverse_);
      const Vec integer = min(max(round((units - offset) * inverse_multiplier), zero()), block_.highest);
      const Vec value = offset + multiplier * integer;
      const Vec difference = w - scale_ * value;
      error = error + difference * difference;
      rest = rest + (units - value);
    }
    return {multiplier, offset, error, whole(offset + rest / columns_, multiplier)};
  }

  const Group& block_;
  Vec scale_;
  Vec inverse_;
  Vec most_;
  Vec columns_;
};

/// Tries some scales near the smallest one with which every block has a map, and keeps the one of smallest squared
/// error.
void fit_affine(const FitAffineArgs& args) {
  constexpr float kTries[] = {1.0F, 0.85F, 0.9F, 0.95F, 1.05F, 1.1F, 1.15F, 1.2F};
  constexpr std::int64_t kMostBlocks = kMaxGroupSize / kAffineColumns;
  const std::int64_t num_blocks = (args.columns + kAffineColumns - 1) / kAffineColumns;
  const Vec highest = set1(static_cast<float>(args.highest));
  const Vec most = set1(static_cast<float>(255 / args.highest));
  for (std::int64_t row = 0; row < kQuantizedPanel; row += kLanes) {
    Group blocks[kMostBlocks];
    Grid grids[kMostBlocks];
    Vec smallest = zero();
    Vec nan_if_not_finite = zero();
    for (std::int64_t b = 0; b < num_blocks; ++b) {
      const std::int64_t first = b * kAffineColumns;
      blocks[b] = {args.w + first * kQuantizedPanel + row, std::min(kAffineColumns, args.columns - first), zero(),
                   highest};
      const GroupRange range(blocks[b]);
      const Grid grid = asymmetric_grid(blocks[b], range.low, range.high, range.sum);
      grids[b] = grid;
      const Vec of_offset = max((zero() - grid.min) / set1(128.0F), (grid.min + grid.scale * highest) / set1(127.0F));
      smallest = max(smallest, max(grid.scale / most, of_offset));
      nan_if_not_finite = nan_if_not_finite + range.nan_if_not_finite;
    }
    Vec best_scale = zero();
    Vec best_error = zero();
    AffineMap best[kMostBlocks];
    for (const float factor : kTries) {
      const Vec rounded = round_to_f16(smallest * set1(factor));
      // 2^-24 is the smallest float16 above 0.
      const Vec scale = select_less(zero(), smallest, max(rounded, set1(0x1p-24F)), rounded);
      AffineMap fits[kMostBlocks];
      Vec error = zero();
      for (std::int64_t b = 0; b < num_blocks; ++b) {
        fits[b] = AffineFit(blocks[b], scale, most).near(grids[b]);
        error = error + fits[b].error;
      }
      if (factor == kTries[0]) {
        std::copy_n(fits, num_blocks, best);
        best_scale = scale;
        best_error = error;
        continue;
      }
      for (std::int64_t b = 0; b < num_blocks; ++b) {
        for (Vec AffineMap::*part :
             {&AffineMap::multiplier, &AffineMap::offset, &AffineMap::error, &AffineMap::next_offset}) {
          best[b].*part = select_less(error, best_error, fits[b].*part, best[b].*part);
        }
      }
      best_scale = select_less(error, best_error, scale, best_scale);
      best_error = min(error, best_error);
    }
    store(args.scales + row, best_scale + nan_if_not_finite);
    for (std::int64_t b = 0; b < num_blocks; ++b) {
      const AffineMap refined = AffineFit(blocks[b], best_scale, most).refined(best[b]);
      std::int8_t* const to = args.affine + b * 2 * kQuantizedPanel + row;
      store_int8(to, round_to_ints(refined.multiplier));
      store_int8(to + kQuantizedPanel, round_to_ints(refined.offset));
    }
  }
}

}  // namespace
}  // namespace pagoda::kernels::PAGODA_SIMD

// Fits the grids of quantised weights (see quantized_kernels.hpp), with one lane for each row. Included once per
// instruction set; PAGODA_SIMD names the namespace. The code uses no fused multiply-adds, so that every instruction set
// finds the same grids.

#include <cstdint>

#include "kernels/cpu/quantized_kernels.hpp"
#include "kernels/quantized.hpp"

namespace pagoda::kernels::PAGODA_SIMD {
namespace {

/// Returns x rounded to float16, as it is stored.
inline Vec round_to_f16(Vec x) {
  Float16 halves[kLanes];
  store_f16(halves, x);
  return load_f16(halves);
}

/// Returns x / y; 0 where y is 0.
inline Vec divide_or_zero(Vec x, Vec y) {
  const Vec none = zero();
  const Vec is_zero = select_less(y, none, none, select_less(none, y, none, set1(1.0F)));
  return select_less(none, is_zero, none, x / (y + is_zero));
}

/// The value of an integer is scale * integer + min. If the scale is 0, all integers must be 0.
struct Grid {
  Vec scale;
  Vec min;
};

/// kLanes rows of a group.
struct Group {
  const float* w = nullptr;  ///< [columns, kQuantizedPanel]
  std::int64_t columns = 0;
  Vec lowest;   ///< lowest integer of the format
  Vec highest;  ///< highest integer of the format

  Vec at(std::int64_t k) const { return load(w + k * kQuantizedPanel); }
};

/// Errors of a group's weights on a grid, and sums of their integers.
struct GridSums {
  Vec error = zero();  ///< sum of squared errors
  Vec integers = zero();
  Vec squares = zero();   ///< sum of squared integers
  Vec products = zero();  ///< sum of integers times weights
};

inline GridSums sums_on(const Group& group, const Grid& grid) {
  const Vec inverse = divide_or_zero(set1(1.0F), grid.scale);
  const Vec limit = set1(1000.0F);
  const Vec below = zero() - limit;
  GridSums sums;
  for (std::int64_t k = 0; k < group.columns; ++k) {
    const Vec w = group.at(k);
    const Vec in_units = min(max((w - grid.min) * inverse, below), limit);
    const Vec integer = min(max(round(in_units), group.lowest), group.highest);
    const Vec difference = w - (grid.scale * integer + grid.min);
    sums.error = sums.error + difference * difference;
    sums.integers = sums.integers + integer;
    sums.squares = sums.squares + integer * integer;
    sums.products = sums.products + integer * w;
  }
  return sums;
}

/// Keeps, in each lane, the offered grid of smallest squared error; among equal errors the first one. If the error of
/// the first grid is NaN, that grid stays.
struct BestGrid {
  Grid grid = {};
  Vec error = {};
  bool none = true;

  void offer(const Grid& candidate, Vec candidate_error) {
    if (none) {
      *this = {candidate, candidate_error, false};
      return;
    }
    grid.scale = select_less(candidate_error, error, candidate.scale, grid.scale);
    grid.min = select_less(candidate_error, error, candidate.min, grid.min);
    error = select_less(candidate_error, error, candidate_error, error);
  }
};

/// Returns a symmetric grid. The lowest integer has no positive counterpart, so the weight of largest magnitude maps to
/// it; among scales near the one that does so exactly, the scale of smallest squared error wins.
inline Grid symmetric_grid(const Group& group, Vec low, Vec high, bool search) {
  if (!search) return {round_to_f16(max(high, zero() - low) / group.highest), zero()};
  constexpr float kTries[] = {1.0F, 0.95F, 0.9F, 0.85F, 1.08F, 1.16F};
  const Vec extreme = select_less(high, zero() - low, low, high);
  BestGrid best;
  for (const float factor : kTries) {
    const Grid grid{round_to_f16(extreme / group.lowest * set1(factor)), zero()};
    best.offer(grid, sums_on(group, grid).error);
  }
  return best.grid;
}

/// Returns the least-squares scale and minimum for the integers in `sums`.
inline Grid fitted(const GridSums& sums, Vec sum_of_weights, Vec columns) {
  const Vec spread = columns * sums.squares - sums.integers * sums.integers;
  Grid grid;
  grid.scale = round_to_f16(divide_or_zero(columns * sums.products - sums.integers * sum_of_weights, spread));
  grid.min = round_to_f16((sum_of_weights - grid.scale * sums.integers) / columns);
  return grid;
}

/// Returns an asymmetric grid: the one of smallest squared error among ranges from the lowest to the highest weight, or
/// a little less at one end or both, each refined twice by least squares.
inline Grid asymmetric_grid(const Group& group, Vec low, Vec high, Vec sum_of_weights) {
  constexpr struct {
    float below;
    float above;
  } kCuts[] = {{0.0F, 0.0F}, {0.05F, 0.05F}, {0.1F, 0.1F}, {0.05F, 0.0F}, {0.0F, 0.05F}};
  constexpr int kFits = 2;
  const Vec range = high - low;
  const Vec columns = set1(static_cast<float>(group.columns));
  BestGrid best;
  for (const auto& [below, above] : kCuts) {
    Grid grid{round_to_f16(range * set1(1 - below - above) / group.highest), round_to_f16(low + range * set1(below))};
    GridSums sums = sums_on(group, grid);
    best.offer(grid, sums.error);
    for (int fit = 0; fit < kFits; ++fit) {
      grid = fitted(sums, sum_of_weights, columns);
      sums = sums_on(group, grid);
      best.offer(grid, sums.error);
    }
  }
  return best.grid;
}

/// Extremes and sum of a group's weights.
struct GroupRange {
  Vec low;
  Vec high;
  Vec sum = zero();
  Vec nan_if_not_finite = zero();

  explicit GroupRange(const Group& group) : low(group.at(0)), high(low) {
    for (std::int64_t k = 0; k < group.columns; ++k) {
      const Vec w = group.at(k);
      low = min(w, low);
      high = max(w, high);
      sum = sum + w;
      nan_if_not_finite = nan_if_not_finite + w * zero();
    }
  }
};

void fit_grids(const FitGridsArgs& args) {
  for (std::int64_t row = 0; row < kQuantizedPanel; row += kLanes) {
    const Group group{args.w + row, args.columns, set1(static_cast<float>(args.lowest)),
                      set1(static_cast<float>(args.highest))};
    const GroupRange range(group);
    const Grid grid = args.mins == nullptr ? symmetric_grid(group, range.low, range.high, args.search)
                                           : asymmetric_grid(group, range.low, range.high, range.sum);
    store(args.scales + row, grid.scale + range.nan_if_not_finite);
    if (args.mins != nullptr) store(args.mins + row, grid.min);
  }
}

}  // namespace
}  // namespace pagoda::kernels::PAGODA_SIMD

#include "kernels/cpu/quantize_weights.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <cmath>
#include <cstdint>
#include <optional>
#include <span>
#include <utility>

#include "kernels/quantized_pack.hpp"
#include "kernels/rotation.hpp"

namespace pagoda::kernels {
namespace {

constexpr std::int64_t kLeastGroup = 16;

/// To the nearest integer, |x| < 2^22.
float round_to_nearest(float x) {
  constexpr float kNoFraction = 12582912.0F;  // 1.5 * 2^23: adding it leaves no fraction bits
  return (x + kNoFraction) - kNoFraction;
}

/// As it will be stored.
float stored(float x) {
  return to_float(to_f16(x));
}

/// What integers stand for: scale * integer + min. Both are as they will be stored.
struct Grid {
  float scale = 0;  ///< 0 when all integers are to be 0
  float min = 0;

  float inverse_scale() const { return scale == 0 ? 0.0F : 1.0F / scale; }
};

/// One group of one row, and the integers that there are, as floats.
struct Group {
  const float* w = nullptr;
  std::int64_t size = 0;
  float lowest = 0;
  float highest = 0;

  /// The integer nearest to a weight.
  float integer(std::int64_t i, float inverse_scale, float min) const {
    const float in_units = std::clamp((w[i] - min) * inverse_scale, -1000.0F, 1000.0F);
    return std::min(std::max(round_to_nearest(in_units), lowest), highest);
  }

  float squared_error(const Grid& grid) const {
    const float inverse = grid.inverse_scale();
    float error = 0;
    for (std::int64_t i = 0; i < size; ++i) {
      const float difference = w[i] - (grid.scale * integer(i, inverse, grid.min) + grid.min);
      error += difference * difference;
    }
    return error;
  }
};

/// Keeps the grid of least squared error, of equals the first.
struct BestGrid {
  Grid grid;
  float error = 0;
  bool none = true;

  void offer(const Group& group, const Grid& candidate) {
    const float candidate_error = group.squared_error(candidate);
    if (!none && !(candidate_error < error)) return;
    *this = {candidate, candidate_error, false};
  }
};

/// Eight bits: highest |w| / 127.
Grid grid_of_8_bits(float extreme) {
  return {stored(std::abs(extreme) / 127.0F), 0};
}

/// Few bits: the lowest integer has no counterpart, so it goes to the side of the extreme; of scales around the one
/// that makes it so, the one of least squared error.
Grid grid_of_few_bits(const Group& group, float extreme) {
  constexpr std::array kTries{1.0F, 0.95F, 0.9F, 0.85F, 1.08F, 1.16F};
  BestGrid best;
  for (const float factor : kTries) {
    const float scale = stored(extreme / group.lowest * factor);
    if (scale != 0) best.offer(group, {scale, 0});
  }
  return best.grid;
}

/// Least squares of scale and minimum for the integers that `grid` gives.
Grid fitted(const Group& group, const Grid& grid) {
  const float inverse = grid.inverse_scale();
  double sum_w = 0;
  double sum_i = 0;
  double sum_ii = 0;
  double sum_iw = 0;
  for (std::int64_t k = 0; k < group.size; ++k) {
    const double w = group.w[k];
    const double i = group.integer(k, inverse, grid.min);
    sum_w += w;
    sum_i += i;
    sum_ii += i * i;
    sum_iw += i * w;
  }
  const auto size = static_cast<double>(group.size);
  const double spread = size * sum_ii - sum_i * sum_i;
  const double scale = spread == 0 ? 0 : (size * sum_iw - sum_i * sum_w) / spread;
  Grid fit{stored(static_cast<float>(scale)), 0};
  fit.min = stored(static_cast<float>((sum_w - double{fit.scale} * sum_i) / size));
  return fit;
}

/// Asymmetric: of ranges from the lowest to the highest weight or a little less at either end, each fitted a few times,
/// the grid of least squared error.
Grid grid_of_range(const Group& group, float low, float high) {
  constexpr std::array kCuts{0.0F, 0.05F, 0.1F};
  constexpr int kFits = 3;
  const float range = high - low;
  BestGrid best;
  for (const float below : kCuts) {
    for (const float above : kCuts) {
      Grid grid{stored(range * (1 - below - above) / group.highest), stored(low + range * below)};
      best.offer(group, grid);
      for (int fit = 0; fit < kFits; ++fit) {
        grid = fitted(group, grid);
        best.offer(group, grid);
      }
    }
  }
  return best.grid;
}

class WeightQuantizer {
 public:
  WeightQuantizer(const CpuKernels& kernels, const QuantizeWeightsParams& p)
      : kernels_(kernels), p_(p), to_{p.data, p.scales, p.from.rows, p.from.columns, p.format, p.mins} {}

  std::int64_t panels() const { return to_.panels(); }
  std::int64_t scratch_floats() const { return to_.padded_columns(); }

  /// False when a weight is not finite.
  bool quantize_panel(std::int64_t panel, float* row_of_weights) const {
    const PanelPlace to = place_of_panel(to_, panel, {p_.data, p_.scales, p_.mins, p_.factors});
    for (std::int64_t r = 0; r < kQuantizedPanel; ++r) {
      const std::int64_t row = panel * kQuantizedPanel + r;
      std::fill_n(row_of_weights, to_.padded_columns(), 0.0F);
      if (row < to_.rows) {
        const auto* from = static_cast<const std::byte*>(p_.from.data) +
                           row * to_.columns * static_cast<std::int64_t>(size_of(p_.from.dtype));
        kernels_.widen(from, p_.from.dtype, to_.columns, row_of_weights);
        if (to_.format.rotated) rotate(row_of_weights);
      }
      const std::int64_t step = to_.scale_columns() / p_.format.group_size;
      for (std::int64_t g = 0; g < to_.groups(); g += step) {
        if (!quantize_groups(row_of_weights, r, g, std::min(to_.groups(), g + step), to)) return false;
      }
    }
    return true;
  }

 private:
  /// Columns that are not zeros behind the end.
  std::int64_t columns() const {
    constexpr std::int64_t kBlock = kRotationBlock;
    return to_.format.rotated ? (to_.columns + kBlock - 1) / kBlock * kBlock : to_.columns;
  }

  void rotate(float* row) const {
    for (std::int64_t k = 0; k < columns(); k += kRotationBlock) rotate_block(row + k, kRotatedWeightFactor);
  }

  /// Groups [first, end) of row `r` of a panel, which share a scale in float16.
  bool quantize_groups(const float* row, std::int64_t r, std::int64_t first, std::int64_t end,
                       const PanelPlace& to) const {
    const QuantizedFormat& format = p_.format;
    const int zero_point = format.zero_point();
    std::array<Group, kFactoredColumns / kLeastGroup> groups;
    std::array<Grid, kFactoredColumns / kLeastGroup> grids;
    for (std::int64_t g = first; g < end; ++g) {
      const auto at = static_cast<std::size_t>(g - first);
      groups[at] = {row + g * format.group_size, std::min(format.group_size, columns() - g * format.group_size),
                    static_cast<float>(-zero_point), static_cast<float>((1 << format.bits) - 1 - zero_point)};
      const std::optional<Grid> grid = grid_of(groups[at]);
      if (!grid) return false;
      grids[at] = *grid;
    }
    const std::int64_t place = first * format.group_size / to_.scale_columns() * kQuantizedPanel + r;
    const auto count = static_cast<std::size_t>(end - first);
    if (format.factored) {
      share(std::span(grids).first(count), place, to.factors + first * to_.group_factors() + r, to);
    } else {
      to.scales[place] = to_f16(grids[0].scale);
      if (format.asymmetric) to.mins[place] = to_f16(grids[0].min);
    }
    for (std::size_t i = 0; i < count; ++i) {
      const float inverse = grids[i].inverse_scale();
      std::array<std::uint8_t, kMostGroupSize> q;
      for (std::int64_t k = 0; k < format.group_size; ++k) {
        const int integer = k < groups[i].size ? static_cast<int>(groups[i].integer(k, inverse, grids[i].min)) : 0;
        q[static_cast<std::size_t>(k)] = static_cast<std::uint8_t>(integer + zero_point);
      }
      pack_columns(
          format.bits, q.data(), format.group_size, r,
          to.data + (first + static_cast<std::int64_t>(i)) * format.group_size * kQuantizedPanel * format.bits / 8);
    }
    return true;
  }

  /// The scale and minimum that grids share, and the factors of each; grids become what these give.
  void share(std::span<Grid> grids, std::int64_t place, std::int8_t* factors, const PanelPlace& to) const {
    const auto share_one = [&](float Grid::*of, Float16& shared, std::int8_t* factor) {
      float most = 0.0F;
      for (const Grid& grid : grids) most = std::max(most, std::abs(grid.*of));
      shared = to_f16(most / 127.0F);
      if (127.0F * to_float(shared) < most) ++shared.bits;  // up, also from 0: of small weights it is subnormal
      const float unit = to_float(shared);
      for (Grid& grid : grids) {
        const float units = unit == 0.0F ? 0.0F : std::clamp(round_to_nearest(grid.*of / unit), -127.0F, 127.0F);
        *factor = static_cast<std::int8_t>(units);
        grid.*of = unit * units;
        factor += to_.group_factors();
      }
    };
    share_one(&Grid::scale, to.scales[place], factors);
    if (p_.format.asymmetric) share_one(&Grid::min, to.mins[place], factors + kQuantizedPanel);
  }

  /// None when a weight is not finite, or the grid's numbers would not be.
  std::optional<Grid> grid_of(const Group& group) const {
    float low = group.size > 0 ? group.w[0] : 0.0F;
    float high = low;
    float zero_if_finite = 0;
    for (std::int64_t i = 0; i < group.size; ++i) {
      low = std::min(low, group.w[i]);
      high = std::max(high, group.w[i]);
      zero_if_finite += group.w[i] * 0.0F;
    }
    if (zero_if_finite != 0) return std::nullopt;
    const float extreme = high >= -low ? high : low;
    const Grid grid = p_.format.asymmetric  ? grid_of_range(group, low, high)
                      : p_.format.bits == 8 ? grid_of_8_bits(extreme)
                                            : grid_of_few_bits(group, extreme);
    if (!std::isfinite(grid.scale) || !std::isfinite(grid.min)) return std::nullopt;
    return grid;
  }

  const CpuKernels& kernels_;
  const QuantizeWeightsParams& p_;
  QuantizedMatrix to_;
};

}  // namespace

Status cpu_quantize_weights(const CpuKernels& kernels, ThreadPool& threads, ScratchPool& scratch,
                            const QuantizeWeightsParams& params) {
  const WeightQuantizer quantizer(kernels, params);
  const int num_threads = threads.num_threads();
  const std::int64_t floats = (quantizer.scratch_floats() + 15) / 16 * 16;
  auto lease = scratch.borrow(num_threads * floats, 1);
  if (!lease) return fail(std::move(lease.error()));
  float* rows = lease->floats(num_threads * floats);
  std::atomic<bool> all_finite = true;
  threads.parallel_for(quantizer.panels(), [&](std::int64_t panel, int thread) {
    if (!quantizer.quantize_panel(panel, rows + thread * floats)) all_finite = false;
  });
  if (all_finite) return {};
  return fail(ErrorCode::bad_file, "a weight is not finite or too large to be quantised");
}

}  // namespace pagoda::kernels

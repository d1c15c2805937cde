#include "kernels/cpu/quantize_weights.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <cmath>
#include <cstdint>
#include <span>

#include "kernels/cpu/quantized_kernels.hpp"
#include "kernels/quantized_pack.hpp"
#include "kernels/rotation.hpp"

namespace pagoda::kernels {
namespace {

constexpr std::int64_t kMinGroup = 16;
/// Maximum columns that share a float16 scale.
constexpr std::int64_t kMaxColumns = std::max(kTwoLevelColumns, kMaxGroupSize);

/// Grids of one group of each row of a panel, as they are stored: a weight is scale * integer + min. If the scale is 0,
/// all integers are 0.
struct Grids {
  std::array<float, kQuantizedPanel> scales = {};
  std::array<float, kQuantizedPanel> mins = {};
};

/// Grids of the groups that share float16 scales.
using SharedGrids = std::array<Grids, kTwoLevelColumns / kMinGroup>;

/// Weights of a panel that share float16 scales, one column after the other, so that one instruction handles several
/// rows. Columns past the end of the matrix are zeros.
struct alignas(64) Weights {
  std::array<float, kMaxColumns * kQuantizedPanel> columns_first;  ///< [kMaxColumns, kQuantizedPanel]

  float* column(std::int64_t k) { return columns_first.data() + k * kQuantizedPanel; }
  const float* column(std::int64_t k) const { return columns_first.data() + k * kQuantizedPanel; }
};

/// Range of the stored integers of a format, before `zero_point` is added.
struct IntegerRange {
  float lowest = 0;
  float highest = 0;
  float zero_point = 0;
};

/// Integers of a group as they are stored: four columns of a row in each word.
using GroupWords = std::array<std::uint32_t, kMaxGroupSize / 4 * kQuantizedPanel>;  // [columns / 4, kQuantizedPanel]

/// Sets the integers of `count` columns at w to those whose values are nearest; the columns behind them, up to
/// `group_size`, get the zero point.
void set_integers(const float* w, std::int64_t count, std::int64_t group_size, const Grids& grids,
                  const IntegerRange& range, GroupWords& words) {
  constexpr float kNoFraction = 12582912.0F;  // 1.5 * 2^23: adding it leaves no fraction bits
  std::array<float, kQuantizedPanel> inverses;
  for (std::size_t r = 0; r < kQuantizedPanel; ++r) inverses[r] = grids.scales[r] == 0 ? 0.0F : 1.0F / grids.scales[r];
  const float lowest = range.lowest;
  const float highest = range.highest;
  const float zero_point = range.zero_point;
  std::fill_n(words.begin(), group_size / 4 * kQuantizedPanel, 0U);
  for (std::int64_t k = 0; k < count; ++k) {
    std::uint32_t* const to = words.data() + k / 4 * kQuantizedPanel;
    const int shift = static_cast<int>(k % 4 * 8);
    for (std::size_t r = 0; r < kQuantizedPanel; ++r) {
      const float in_units = std::clamp(
          (w[k * kQuantizedPanel + static_cast<std::int64_t>(r)] - grids.mins[r]) * inverses[r], -1000.0F, 1000.0F);
      const float integer = std::clamp((in_units + kNoFraction) - kNoFraction, lowest, highest);
      to[r] |= static_cast<std::uint32_t>(static_cast<std::int32_t>(integer + zero_point)) << shift;
    }
  }
  for (std::int64_t k = count; k < group_size; ++k) {
    std::uint32_t* const to = words.data() + k / 4 * kQuantizedPanel;
    for (std::size_t r = 0; r < kQuantizedPanel; ++r) to[r] |= static_cast<std::uint32_t>(zero_point) << k % 4 * 8;
  }
}

class WeightQuantizer {
 public:
  WeightQuantizer(const CpuKernels& kernels, const QuantizeWeightsParams& p)
      : kernels_(kernels), p_(p), to_{p.data, p.scales, p.from.rows, p.from.columns, p.format, p.mins} {}

  std::int64_t panels() const { return to_.panels(); }

  /// Returns whether all weights are finite and float16 holds all scales and minimums.
  bool quantize_panel(std::int64_t panel) const {
    const PanelPointers to = panel_pointers(to_, panel, {p_.data, p_.scales, p_.mins, p_.factors});
    const std::int64_t step = to_.scale_columns() / p_.format.group_size;
    for (std::int64_t g = 0; g < to_.groups(); g += step) {
      if (!quantize_groups(panel, g, std::min(to_.groups(), g + step), to)) return false;
    }
    return true;
  }

 private:
  /// Loads columns [first, first + scale_columns()) of a panel.
  void load(std::int64_t panel, std::int64_t first, Weights& weights) const {
    const auto element_bytes = static_cast<std::int64_t>(size_of(p_.from.dtype));
    const std::int64_t count = std::min(to_.scale_columns(), to_.columns - first);
    std::array<float, kMaxColumns> one_row;
    for (std::int64_t r = 0; r < kQuantizedPanel; ++r) {
      const std::int64_t row = panel * kQuantizedPanel + r;
      if (row < to_.rows) {
        const auto* from = static_cast<const std::byte*>(p_.from.data) + (row * to_.columns + first) * element_bytes;
        kernels_.widen(from, p_.from.dtype, count, one_row.data());
      } else {
        one_row.fill(0.0F);
      }
      for (std::int64_t k = 0; k < count; ++k) weights.column(k)[r] = one_row[static_cast<std::size_t>(k)];
    }
    std::fill(weights.column(count), weights.column(to_.scale_columns()), 0.0F);
    if (!to_.format.rotated) return;
    for (std::int64_t k = 0; k < std::min(to_.scale_columns(), columns() - first); k += kRotationBlock) {
      rotate_block<kQuantizedPanel>(weights.column(k), kRotatedWeightFactor);
    }
  }

  /// Returns the number of columns that are not padding; in a rotated format, a multiple of kRotationBlock.
  std::int64_t columns() const {
    constexpr std::int64_t kBlock = kRotationBlock;
    return to_.format.rotated ? (to_.columns + kBlock - 1) / kBlock * kBlock : to_.columns;
  }
  std::int64_t columns_of(std::int64_t group) const {
    return std::min(p_.format.group_size, columns() - group * p_.format.group_size);
  }
  int zero_point() const { return p_.format.affine ? 0 : p_.format.zero_point(); }
  int lowest() const { return -zero_point(); }
  int highest() const { return lowest() + (1 << p_.format.bits) - 1; }

  /// Quantises groups [first, end) of a panel, which share float16 scales. Returns the result of
  /// quantize_panel for these groups.
  bool quantize_groups(std::int64_t panel, std::int64_t first, std::int64_t end, const PanelPointers& to) const {
    Weights weights;
    load(panel, first * p_.format.group_size, weights);
    if (p_.format.affine) return quantize_affine(weights, first, to);
    SharedGrids shared;
    const std::span grids = std::span(shared).first(static_cast<std::size_t>(end - first));
    for (std::int64_t g = first; g < end; ++g) {
      if (!fit(weights, first, g, grids[static_cast<std::size_t>(g - first)])) return false;
    }
    const std::int64_t place = first * p_.format.group_size / to_.scale_columns() * kQuantizedPanel;
    store(grids, place, first, to);
    for (std::int64_t g = first; g < end; ++g) {
      pack(weights.column((g - first) * p_.format.group_size), g * p_.format.group_size, columns_of(g),
           p_.format.group_size, grids[static_cast<std::size_t>(g - first)], to);
    }
    return true;
  }

  /// Does the work of quantize_groups for a group of an affine format.
  bool quantize_affine(const Weights& weights, std::int64_t group, const PanelPointers& to) const {
    const std::int64_t first = group * p_.format.group_size;
    std::int8_t* const all = to.factors + first / kAffineColumns * to_.shared_factors();
    std::fill_n(all, p_.format.group_size / kAffineColumns * to_.shared_factors(), std::int8_t{0});
    std::array<float, kQuantizedPanel> scales;
    kernels_.quantized.fit_affine({weights.column(0), columns_of(group), highest(), scales.data(), all});
    if (!std::ranges::all_of(scales, [](float scale) { return std::isfinite(scale); })) return false;
    for (std::size_t r = 0; r < kQuantizedPanel; ++r) {
      to.scales[group * kQuantizedPanel + static_cast<std::int64_t>(r)] = to_f16(scales[r]);
    }
    for (std::int64_t column = 0; column < p_.format.group_size; column += kAffineColumns) {
      const std::int8_t* const factors = all + column / kAffineColumns * to_.shared_factors();
      Grids grids;
      for (std::size_t r = 0; r < kQuantizedPanel; ++r) {
        grids.scales[r] = scales[r] * static_cast<float>(factors[r]);
        grids.mins[r] = scales[r] * static_cast<float>(factors[r + kQuantizedPanel]);
      }
      const std::int64_t count = std::clamp<std::int64_t>(columns_of(group) - column, 0, kAffineColumns);
      pack(weights.column(column), first + column, count, kAffineColumns, grids, to);
    }
    return true;
  }

  /// Returns whether all weights of the group and the numbers of its grids are finite.
  bool fit(const Weights& weights, std::int64_t first, std::int64_t group, Grids& grids) const {
    FitGridsArgs args;
    args.w = weights.column((group - first) * p_.format.group_size);
    args.columns = columns_of(group);
    args.lowest = lowest();
    args.highest = highest();
    args.search = p_.format.bits < 8;
    args.scales = grids.scales.data();
    args.mins = p_.format.asymmetric ? grids.mins.data() : nullptr;
    kernels_.quantized.fit_grids(args);
    const auto finite = [](float x) { return std::isfinite(x); };
    return std::ranges::all_of(grids.scales, finite) && std::ranges::all_of(grids.mins, finite);
  }

  /// Writes scales and minimums from index `place` on. In a format with two-level scales it writes shared scales and
  /// minimums and the factors of each group, and changes the grids to the products of both.
  void store(std::span<Grids> grids, std::int64_t place, std::int64_t first, const PanelPointers& to) const {
    const auto store_row = [&](std::array<float, kQuantizedPanel> Grids::*of, std::int64_t r, Float16& stored,
                               std::int64_t kind) {
      const auto row = static_cast<std::size_t>(r);
      if (!p_.format.two_level_scales) {
        stored = to_f16((grids[0].*of)[row]);
        return;
      }
      float max_magnitude = 0.0F;
      for (const Grids& grid : grids) max_magnitude = std::max(max_magnitude, std::abs((grid.*of)[row]));
      stored = to_f16(max_magnitude / 127.0F);
      // Takes the next larger float16, also after 0: with small weights the scale is subnormal.
      if (127.0F * to_float(stored) < max_magnitude) ++stored.bits;
      const float unit = to_float(stored);
      std::int8_t* factor = to.factors + first * to_.shared_factors() + kind * kQuantizedPanel + r;
      for (Grids& grid : grids) {
        float& value = (grid.*of)[row];
        const float units = unit == 0.0F ? 0.0F : std::clamp(std::nearbyint(value / unit), -127.0F, 127.0F);
        *factor = static_cast<std::int8_t>(units);
        value = unit * units;
        factor += to_.shared_factors();
      }
    };
    for (std::int64_t r = 0; r < kQuantizedPanel; ++r) {
      store_row(&Grids::scales, r, to.scales[place + r], 0);
      if (p_.format.asymmetric) store_row(&Grids::mins, r, to.mins[place + r], 1);
    }
  }

  /// Packs the integers of `padded` columns from `column` on, of which `count` are not padding; w points to the first.
  void pack(const float* w, std::int64_t column, std::int64_t count, std::int64_t padded, const Grids& grids,
            const PanelPointers& to) const {
    GroupWords words;
    set_integers(w, count, padded, grids,
                 {static_cast<float>(lowest()), static_cast<float>(highest()), static_cast<float>(zero_point())},
                 words);
    pack_words(p_.format.bits, words.data(), padded, to.data + column * kQuantizedPanel * p_.format.bits / 8);
  }

  const CpuKernels& kernels_;
  const QuantizeWeightsParams& p_;
  QuantizedMatrix to_;
};

}  // namespace

Status cpu_quantize_weights(const CpuKernels& kernels, ThreadPool& threads, const QuantizeWeightsParams& params) {
  const WeightQuantizer quantizer(kernels, params);
  std::atomic<bool> all_finite = true;
  threads.parallel_for(quantizer.panels(), [&](std::int64_t panel) {
    if (!quantizer.quantize_panel(panel)) all_finite = false;
  });
  if (all_finite) return {};
  return fail(ErrorCode::bad_file, "a weight is not finite or too large to be quantised");
}

}  // namespace pagoda::kernels

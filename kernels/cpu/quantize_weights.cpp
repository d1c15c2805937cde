#include "kernels/cpu/quantize_weights.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <cmath>
#include <cstdint>
#include <string>
#include <utility>

namespace pagoda::kernels {
namespace {

/// To the nearest integer, |x| < 2^22.
float round_to_nearest(float x) {
  constexpr float kNoFraction = 12582912.0F;  // 1.5 * 2^23: adding it leaves no fraction bits
  return (x + kNoFraction) - kNoFraction;
}

/// One group of one row: integers from -zero_point to zero_point - 1 as floats, with the sum of squared errors.
struct Group {
  const float* w = nullptr;
  std::int64_t size = 0;
  float zero_point = 0;

  /// A weight in units of the scale.
  float integer(std::int64_t i, float inverse_scale) const {
    return std::min(std::max(round_to_nearest(std::clamp(w[i] * inverse_scale, -1000.0F, 1000.0F)), -zero_point),
                    zero_point - 1);
  }

  float squared_error(float scale) const {
    const float inverse = 1.0F / scale;
    float error = 0;
    for (std::int64_t i = 0; i < size; ++i) {
      const float difference = w[i] - scale * integer(i, inverse);
      error += difference * difference;
    }
    return error;
  }
};

/// The scale as it will be stored; 0 when all integers are to be 0.
float stored(float scale) {
  return to_float(to_f16(scale));
}

/// Eight bits: highest |w| / 127.
float scale_of_8_bits(const Group&, float extreme) {
  return stored(std::abs(extreme) / 127.0F);
}

/// Four bits: -8 has no counterpart, so it goes to the side of the extreme; of scales around the one that makes it so,
/// the one of least squared error.
float scale_of_4_bits(const Group& group, float extreme) {
  constexpr std::array kTries{1.0F, 0.95F, 0.9F, 0.85F, 1.08F, 1.16F};
  float best = 0;
  float least_error = 0;
  for (const float factor : kTries) {
    const float scale = stored(extreme / -8.0F * factor);
    if (scale == 0) continue;
    const float error = group.squared_error(scale);
    if (best == 0 || error < least_error) {
      best = scale;
      least_error = error;
    }
  }
  return best;
}

class WeightQuantizer {
 public:
  WeightQuantizer(const CpuKernels& kernels, const QuantizeWeightsParams& p)
      : kernels_(kernels), p_(p), to_{p.data, p.scales, p.from.rows, p.from.columns, p.format} {}

  std::int64_t panels() const { return to_.panels(); }
  std::int64_t scratch_floats() const { return to_.padded_columns(); }

  /// False when a weight is not finite.
  bool quantize_panel(std::int64_t panel, float* row_of_weights) const {
    std::uint8_t* data = p_.data + panel * to_.panel_bytes();
    Float16* scales = p_.scales + panel * to_.panel_scales();
    if (p_.format.bits == 4) std::fill_n(data, to_.panel_bytes(), std::uint8_t{0});
    for (std::int64_t r = 0; r < kQuantizedPanel; ++r) {
      const std::int64_t row = panel * kQuantizedPanel + r;
      std::fill_n(row_of_weights, to_.padded_columns(), 0.0F);
      if (row < to_.rows) {
        const auto* from = static_cast<const std::byte*>(p_.from.data) +
                           row * to_.columns * static_cast<std::int64_t>(size_of(p_.from.dtype));
        kernels_.widen(from, p_.from.dtype, to_.columns, row_of_weights);
      }
      for (std::int64_t g = 0; g < to_.groups(); ++g) {
        const Group group{row_of_weights + g * p_.format.group_size, p_.format.group_size,
                          static_cast<float>(p_.format.zero_point())};
        if (!quantize_group(group, r, g, data, scales)) return false;
      }
    }
    return true;
  }

 private:
  bool quantize_group(const Group& group, std::int64_t r, std::int64_t g, std::uint8_t* data, Float16* scales) const {
    float low = 0;
    float high = 0;
    float zero_if_finite = 0;
    for (std::int64_t i = 0; i < group.size; ++i) {
      low = std::min(low, group.w[i]);
      high = std::max(high, group.w[i]);
      zero_if_finite += group.w[i] * 0.0F;
    }
    const float extreme = high >= -low ? high : low;
    const bool is_8 = p_.format.bits == 8;
    const float scale = is_8 ? scale_of_8_bits(group, extreme) : scale_of_4_bits(group, extreme);
    if (zero_if_finite != 0 || !std::isfinite(scale)) return false;
    scales[g * kQuantizedPanel + r] = to_f16(scale);
    const float inverse = scale == 0 ? 0.0F : 1.0F / scale;
    for (std::int64_t i = 0; i < group.size; ++i) {
      const auto q = static_cast<std::uint8_t>(group.integer(i, inverse) + group.zero_point);
      const std::int64_t column = g * group.size + i;
      if (is_8) {
        data[(column / 4 * kQuantizedPanel + r) * 4 + column % 4] = q;
      } else {
        std::uint8_t& pair = data[(column / 8 * kQuantizedPanel + r) * 4 + column % 4];
        pair = static_cast<std::uint8_t>(pair | (column % 8 < 4 ? q : q << 4));
      }
    }
    return true;
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

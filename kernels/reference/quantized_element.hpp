#pragma once

#include <array>
#include <cstdint>

#include "kernels/quantized.hpp"

namespace pagoda::kernels::reference {

/// Returns the exact w[n, k] of the formula in kernels/quantized.hpp.
inline double load(const QuantizedMatrix& w, std::int64_t n, std::int64_t k) {
  const std::int64_t panel = n / kQuantizedPanel;
  const std::int64_t row = n % kQuantizedPanel;
  const std::uint8_t* data = w.data + panel * w.panel_bytes();
  const auto byte = [&](std::int64_t word) -> int { return data[(word * kQuantizedPanel + row) * 4 + k % 4]; };
  const auto half = [&](std::int64_t word) { return k % 8 < 4 ? byte(word) & 15 : byte(word) >> 4; };
  int q = 0;
  const auto quarter = [&](std::int64_t block_bytes) {
    return data[k / 16 * block_bytes + row * 4 + k % 4] >> k % 16 / 4 * 2 & 3;
  };
  switch (w.format.bits) {
    case 2:
      q = quarter(64);
      break;
    case 3: {
      const std::uint8_t* word = data + k / 16 * 96 + 64 + row * 2;
      const int first_bit = std::array{0, 8, 4, 12}[static_cast<std::size_t>(k % 4)];
      q = quarter(96) | (word[first_bit / 8] >> (first_bit % 8 + k % 16 / 4) & 1) << 2;
      break;
    }
    case 8:
      q = byte(k / 4);
      break;
    case 6:
      q = half(k / 16 * 3 + k % 16 / 8) | (byte(k / 16 * 3 + 2) >> k % 16 / 4 * 2 & 3) << 4;
      break;
    case 5:
      q = half(k / 32 * 5 + k % 32 / 8) | (byte(k / 32 * 5 + 4) >> k % 32 / 4 & 1) << 4;
      break;
    default:
      q = half(k / 8);
  }
  const std::int64_t scale = panel * w.panel_scales() + k / w.scale_columns() * kQuantizedPanel + row;
  double of_scale = 1;
  double of_min = 1;
  const std::int8_t* factors = nullptr;
  if (const std::int64_t columns = w.format.factor_columns(); columns > 0) {
    factors = w.factors + panel * w.panel_factors() + k / columns * w.shared_factors();
  }
  if (w.format.affine) {
    return double{to_float(w.scales[scale])} * (factors[kQuantizedPanel + row] + factors[row] * q);
  }
  if (w.format.two_level_scales) {
    of_scale = factors[row];
    of_min = w.format.asymmetric ? factors[kQuantizedPanel + row] : 0;
  }
  const double min = w.mins == nullptr ? 0.0 : of_min * double{to_float(w.mins[scale])};
  return of_scale * double{to_float(w.scales[scale])} * w.format.value_of(q) + min;
}

}  // namespace pagoda::kernels::reference

#pragma once

#include <cstdint>

#include "kernels/quantized.hpp"

namespace pagoda::kernels::reference {

/// w[n, k] of the formula in kernels/quantized.hpp, exact.
inline double load(const QuantizedMatrix& w, std::int64_t n, std::int64_t k) {
  const std::int64_t panel = n / kQuantizedPanel;
  const std::int64_t row = n % kQuantizedPanel;
  const std::uint8_t* data = w.data + panel * w.panel_bytes();
  int q = 0;
  if (w.format.bits == 8) {
    q = data[(k / 4 * kQuantizedPanel + row) * 4 + k % 4];
  } else {
    const int pair = data[(k / 8 * kQuantizedPanel + row) * 4 + k % 4];
    q = k % 8 < 4 ? pair & 15 : pair >> 4;
  }
  const std::int64_t group = panel * w.panel_scales() + k / w.format.group_size * kQuantizedPanel + row;
  const float min = w.mins == nullptr ? 0.0F : to_float(w.mins[group]);
  return double{to_float(w.scales[group])} * (q - w.format.zero_point()) + double{min};
}

}  // namespace pagoda::kernels::reference

#pragma once

/// Quantised matrices for tests: all kinds of formats, a matrix that owns its memory, and its weights read by the
/// layout alone.

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "kernels/quantized_pack.hpp"
#include "kernels/reference/element.hpp"
#include "tests/kernels/op_fixtures.hpp"

namespace pagoda::kernels::testing_support {

/// A quantised matrix that owns its memory.
struct OwnedMatrix {
  QuantizedMatrix view;
  Buffer data;
  Buffer scales;
  Buffer mins;
  Buffer factors;
};

/// A row, quantised to the nearest values of the format's codebook in its own memory.
struct CodebookRow {
  CodebookRow(const float* row, const QuantizedMatrix& shape) {
    const std::int64_t size = shape.format.group_size;
    float highest = 0;
    for (int i = 0; i < 16; ++i) highest = std::max(highest, static_cast<float>(std::abs(shape.format.value_of(i))));
    std::vector<float> wanted;  // scales of the groups
    for (std::int64_t k = 0; k < shape.columns; k += size) {
      float most = 0;
      for (std::int64_t i = k; i < std::min(shape.columns, k + size); ++i) most = std::max(most, std::abs(row[i]));
      wanted.push_back(most / highest);
    }
    const auto groups_of_scale = static_cast<std::size_t>(shape.scale_columns() / size);
    for (std::size_t g = 0; g < wanted.size(); g += groups_of_scale) {
      const auto end = wanted.begin() + static_cast<std::ptrdiff_t>(std::min(wanted.size(), g + groups_of_scale));
      const float most = *std::max_element(wanted.begin() + static_cast<std::ptrdiff_t>(g), end);
      scales.push_back(to_f16(shape.format.two_level_scales ? most / 100 : most));
      if (!shape.format.two_level_scales) continue;
      for (auto scale = wanted.begin() + static_cast<std::ptrdiff_t>(g); scale != end; ++scale) {
        factors.push_back(static_cast<std::int8_t>(std::lround(*scale / to_float(scales.back()))));
      }
    }
    for (std::int64_t k = 0; k < shape.columns; ++k) {
      const auto group = static_cast<std::size_t>(k / size);
      const float scale = to_float(scales[group / groups_of_scale]) * (factors.empty() ? 1.0F : factors[group]);
      int best = 0;
      for (int i = 1; i < 16; ++i) {
        const auto error = [&](int place) {
          return std::abs(scale * static_cast<float>(shape.format.value_of(place)) - row[k]);
        };
        if (error(i) < error(best)) best = i;
      }
      q.push_back(static_cast<std::uint8_t>(best));
    }
  }

  std::vector<std::uint8_t> q;
  std::vector<Float16> scales;
  std::vector<std::int8_t> factors;
};

inline void quantize_by_codebook(const std::vector<float>& plain, const OwnedMatrix& matrix) {
  const QuantizedMatrix& shape = matrix.view;
  for (std::int64_t panel = 0; panel < shape.panels(); ++panel) {
    std::vector<CodebookRow> rows;
    const std::int64_t first = panel * kQuantizedPanel;
    for (std::int64_t n = first; n < std::min(shape.rows, first + kQuantizedPanel); ++n) {
      rows.emplace_back(plain.data() + n * shape.columns, shape);
    }
    std::vector<QuantizedRow> views;
    for (const CodebookRow& row : rows) {
      views.push_back({row.q.data(), row.scales.data(), nullptr, row.factors.data(), nullptr});
    }
    const PanelPointers memory{matrix.data.as<std::uint8_t>(), matrix.scales.as<Float16>(), nullptr,
                               matrix.factors.as<std::int8_t>()};
    pack_panel(shape, views, panel_pointers(shape, panel, memory));
  }
}

inline OwnedMatrix quantized(const OpRunner& runner, const TypedArray& weights, std::int64_t rows, std::int64_t columns,
                             const QuantizedFormat& format) {
  const auto device = create_cpu_device({1, "scalar"}).value();
  OwnedMatrix matrix{{nullptr, nullptr, rows, columns, format}, {}, {}, {}, {}};
  const auto allocate = [&](std::int64_t bytes) {
    return device->allocate(static_cast<std::size_t>(bytes), MemoryKind::device).value();
  };
  matrix.data = allocate(matrix.view.data_bytes());
  matrix.scales = allocate(matrix.view.scale_bytes());
  if (format.asymmetric) matrix.mins = allocate(matrix.view.min_bytes());
  if (format.factor_columns() > 0) matrix.factors = allocate(matrix.view.factor_bytes());
  matrix.view.factors = matrix.factors.as<std::int8_t>();
  matrix.view.data = matrix.data.as<std::uint8_t>();
  matrix.view.scales = matrix.scales.as<Float16>();
  matrix.view.mins = matrix.mins.as<Float16>();
  if (format.codebook != Codebook::none) {
    std::vector<float> plain;
    for (std::int64_t i = 0; i < rows * columns; ++i) {
      plain.push_back(reference::load(weights.data(), weights.dtype(), i));
    }
    quantize_by_codebook(plain, matrix);
    return matrix;
  }
  const Status status = runner(QuantizeWeightsParams{.from = {weights.data(), weights.dtype(), rows, columns},
                                                     .format = format,
                                                     .data = matrix.data.as<std::uint8_t>(),
                                                     .scales = matrix.scales.as<Float16>(),
                                                     .mins = matrix.mins.as<Float16>(),
                                                     .factors = matrix.factors.as<std::int8_t>()});
  EXPECT_TRUE(status.has_value()) << status.error().message;
  return matrix;
}

/// Returns weight [n, k], read according to the layout of QuantizedMatrix.
inline double weight(const QuantizedMatrix& w, std::int64_t n, std::int64_t k) {
  const std::int64_t panel = n / kQuantizedPanel;
  const std::int64_t row = n % kQuantizedPanel;
  const std::uint8_t* data = w.data + panel * w.panel_bytes();
  const auto word = [&](std::int64_t place) { return data + (place * kQuantizedPanel + row) * 4; };
  int q = 0;
  if (w.format.bits == 8) {
    q = word(k / 4)[k % 4];
  } else if (w.format.bits < 4) {
    // Each 16 columns have a word with two bits of each column; with 3 bits, half a word with the third bits follows.
    const std::uint8_t* const block = data + k / 16 * 32 * w.format.bits;
    const std::int64_t step = k % 16 / 4;
    q = block[row * 4 + k % 4] >> 2 * step & 3;
    const int place[] = {0, 8, 4, 12};
    if (w.format.bits == 3) {
      q |= ((block[64 + 2 * row] | block[65 + 2 * row] << 8) >> place[k % 4] >> step & 1) << 2;
    }
  } else {
    // A block has words of 4-bit halves, then a word of the higher bits.
    const std::int64_t columns = w.format.bits == 4 ? 8 : w.format.bits == 5 ? 32 : 16;
    const std::int64_t words = columns * w.format.bits / 32;
    const std::int64_t first = k / columns * words;
    const std::int64_t step = k % columns / 4;
    q = word(first + step / 2)[k % 4] >> (step % 2 * 4) & 0xF;
    if (w.format.bits == 5) q |= (word(first + 4)[k % 4] >> step & 1) << 4;
    if (w.format.bits == 6) q |= (word(first + 2)[k % 4] >> 2 * step & 3) << 4;
  }
  const std::int64_t place = panel * w.panel_scales() + k / w.scale_columns() * kQuantizedPanel + row;
  double scale = to_float(w.scales[place]);
  if (w.format.affine) {
    const std::int8_t* map = w.factors + (panel * w.padded_columns() / 32 + k / 32) * 2 * kQuantizedPanel + row;
    return scale * (map[kQuantizedPanel] + map[0] * q);
  }
  double min = w.format.asymmetric ? to_float(w.mins[place]) : 0.0F;
  if (w.format.two_level_scales) {
    const std::int64_t kinds = w.format.asymmetric ? 2 : 1;
    const std::int8_t* factors =
        w.factors + (panel * w.groups() + k / w.format.group_size) * kinds * kQuantizedPanel + row;
    scale *= factors[0];
    min *= factors[(kinds - 1) * kQuantizedPanel];
  }
  if (w.format.asymmetric) return scale * q + min;
  if (w.format.codebook != Codebook::none) return scale * values_of(w.format.codebook)[static_cast<std::size_t>(q)];
  return scale * (q - (1 << (w.format.bits - 1)));
}

inline constexpr QuantizedFormat kFormats[] = {kInt8Weights,
                                               {4, 32},
                                               {8, 16},
                                               {8, 32},
                                               {8, 64},
                                               {4, 16},
                                               {4, 64},
                                               {4, 128},
                                               {8, 256},
                                               {4, 80},
                                               {4, 16, true},
                                               {4, 32, true},
                                               {4, 64, true},
                                               {8, 32, true},
                                               {4, 128, true},
                                               {8, 48, true},
                                               {8, 128, true},
                                               {8, 128},
                                               {4, 32, false, true},
                                               {4, 32, true, true},
                                               {8, 64, true, true},
                                               {5, 32},
                                               {5, 32, true},
                                               {5, 96},
                                               {5, 64, true, true},
                                               {6, 16},
                                               {6, 32, true},
                                               {6, 48},
                                               {3, 16},
                                               {2, 16, true, false, Codebook::none, true},
                                               {3, 32, true, false, Codebook::none, true},
                                               {4, 32, false, false, Codebook::iq4_nl},
                                               {4, 64, false, false, Codebook::nf4},
                                               {4, 16, false, false, Codebook::fp4},
                                               {4, 32, false, false, Codebook::e2m1},
                                               {4, 32, true, false, Codebook::none, true},
                                               {4, 16, false, false, Codebook::none, true},
                                               {5, 64, true, false, Codebook::none, true},
                                               {6, 16, false, false, Codebook::none, true},
                                               {6, 128, false, true, Codebook::none, true},
                                               {6, 32, true, false, Codebook::none, true},
                                               {4, 32, false, false, Codebook::iq4_nl, true},
                                               {4, 16, false, false, Codebook::nf4, true},
                                               kInt4Weights,
                                               kInt6Weights,
                                               {6, 96, false, true, Codebook::none, false, true},
                                               {4, 256, false, true, Codebook::none, false, true}};

inline std::string format_name(const QuantizedFormat& format) {
  return "int" + std::to_string(format.bits) + "_group" + std::to_string(format.group_size) +
         (format.asymmetric ? "_asymmetric" : "") + (format.rotated ? "_rotated" : "") +
         (format.two_level_scales ? "_factored" : "") + (format.affine ? "_affine" : "") +
         (format.codebook == Codebook::none ? "" : "_codebook" + std::to_string(static_cast<int>(format.codebook)));
}

}  // namespace pagoda::kernels::testing_support

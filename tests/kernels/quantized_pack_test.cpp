#include "kernels/quantized_pack.hpp"

#include <cmath>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "kernels/reference/quantized_element.hpp"

namespace pagoda::kernels {
namespace {

constexpr QuantizedFormat kPackFormats[] = {{8, 32},
                                            {8, 16},
                                            {8, 32, true},
                                            {4, 32},
                                            {4, 32, true},
                                            {4, 16, true},
                                            {4, 16},
                                            {8, 128},
                                            {8, 48, true},
                                            {4, 256},
                                            {5, 32},
                                            {5, 96, true},
                                            {6, 16},
                                            {2, 32},
                                            {3, 16},
                                            {2, 16, true, false, Codebook::none, true},
                                            {6, 64, true},
                                            {4, 32, false, false, Codebook::iq4_nl},
                                            {4, 64, false, false, Codebook::nf4},
                                            {4, 32, true, false, Codebook::none, true},
                                            {6, 16, false, false, Codebook::none, true},
                                            kInt4Weights,
                                            {6, 64, false, true, Codebook::none, false, true}};

std::string name_of(const QuantizedFormat& format) {
  return "int" + std::to_string(format.bits) + " " + std::to_string(format.group_size) +
         (format.asymmetric ? " asymmetric" : "") + (format.codebook == Codebook::none ? "" : " codebook") +
         (format.two_level_scales ? " two_level_scales" : "") + (format.affine ? " affine" : "");
}

/// Random rows, and the matrix into which they are packed.
struct Packed {
  Packed(std::int64_t rows, std::int64_t columns, const QuantizedFormat& format)
      : matrix{nullptr, nullptr, rows, columns, format},
        q(static_cast<std::size_t>(rows * columns)),
        num_scales((columns + matrix.scale_columns() - 1) / matrix.scale_columns()),
        row_scales(static_cast<std::size_t>(rows * num_scales)),
        row_mins(row_scales.size()),
        num_factors(matrix.panel_factors() / matrix.shared_factors()),
        row_factors(static_cast<std::size_t>(rows * num_factors)),
        row_min_factors(row_factors.size()),
        data(static_cast<std::size_t>(matrix.data_bytes()), 0x5A),
        scales(static_cast<std::size_t>(matrix.panels() * matrix.panel_scales()), Float16{0x5A5A}),
        mins(format.asymmetric ? scales.size() : 0, Float16{0x5A5A}),
        factors(static_cast<std::size_t>(matrix.factor_bytes()), 0x5A) {
    std::mt19937 random(7);
    for (auto& integer : q) integer = static_cast<std::uint8_t>(random() >> (32 - format.bits));
    std::normal_distribution<float> normal;
    for (auto& scale : row_scales) scale = to_f16(normal(random));
    for (auto& min : row_mins) min = to_f16(normal(random));
    for (auto* of : {&row_factors, &row_min_factors}) {
      for (auto& factor : *of) factor = static_cast<std::int8_t>(random());
    }
    const PanelPointers memory{data.data(), scales.data(), format.asymmetric ? mins.data() : nullptr,
                               format.factor_columns() > 0 ? factors.data() : nullptr};
    for (std::int64_t panel = 0; panel < matrix.panels(); ++panel) pack(panel, memory);
    matrix.data = data.data();
    matrix.scales = scales.data();
    matrix.mins = memory.mins;
    matrix.factors = memory.factors;
  }

  void pack(std::int64_t panel, const PanelPointers& memory) {
    std::vector<QuantizedRow> rows;
    const std::int64_t first = panel * kQuantizedPanel;
    for (std::int64_t n = first; n < std::min(matrix.rows, first + kQuantizedPanel); ++n) {
      rows.push_back({q.data() + n * matrix.columns, row_scales.data() + n * num_scales,
                      row_mins.data() + n * num_scales, row_factors.data() + n * num_factors,
                      row_min_factors.data() + n * num_factors});
    }
    pack_panel(matrix, rows, panel_pointers(matrix, panel, memory));
  }

  double weight(std::int64_t n, std::int64_t k) const {
    const auto place = static_cast<std::size_t>(n * num_scales + k / matrix.scale_columns());
    const std::uint8_t stored = q[static_cast<std::size_t>(n * matrix.columns + k)];
    const int integer = matrix.format.value_of(stored);
    double factor = 1;
    double min_factor = 1;
    if (const std::int64_t columns = matrix.format.factor_columns(); columns > 0) {
      const auto shared = static_cast<std::size_t>(n * num_factors + k / columns);
      factor = row_factors[shared];
      min_factor = row_min_factors[shared];
    }
    if (matrix.format.affine) return double{to_float(row_scales[place])} * (min_factor + factor * stored);
    return factor * double{to_float(row_scales[place])} * integer +
           (matrix.format.asymmetric ? min_factor * double{to_float(row_mins[place])} : 0.0);
  }

  QuantizedMatrix matrix;
  std::vector<std::uint8_t> q;
  std::int64_t num_scales;  ///< number of scales of a row
  std::vector<Float16> row_scales;
  std::vector<Float16> row_mins;
  std::int64_t num_factors;  ///< number of factors of a row
  std::vector<std::int8_t> row_factors;
  std::vector<std::int8_t> row_min_factors;
  std::vector<std::uint8_t> data;
  std::vector<Float16> scales;
  std::vector<Float16> mins;
  std::vector<std::int8_t> factors;
};

TEST(QuantizedPack, KeepsEveryWeightAndFillsUpWithZeros) {
  for (const QuantizedFormat& format : kPackFormats) {
    for (const std::int64_t rows : {1, 15, 16, 17, 40}) {
      for (const std::int64_t columns : {1, 7, 8, 31, 32, 256, 300}) {
        SCOPED_TRACE(testing::Message() << name_of(format) << " [" << rows << ", " << columns << "]");
        const Packed packed(rows, columns, format);
        const QuantizedMatrix& matrix = packed.matrix;
        for (std::int64_t n = 0; n < matrix.panels() * kQuantizedPanel; ++n) {
          for (std::int64_t k = 0; k < matrix.padded_columns(); ++k) {
            const double actual = reference::load(matrix, n, k);
            if (n < rows && k < columns) {
              ASSERT_EQ(actual, packed.weight(n, k)) << n << ", " << k;
            } else if (n >= rows || (!format.asymmetric && !format.affine && format.codebook != Codebook::iq4_nl)) {
              ASSERT_EQ(actual, 0.0) << n << ", " << k;
            }
          }
        }
      }
    }
  }
}

TEST(QuantizedPack, FillsUpWithIntegersThatStandForNothing) {
  const Packed packed(3, 20, {4, 32});
  // The low halves hold columns 16 to 19; the high halves (columns 20 to 23) and columns 24 to 31 are zero_point.
  for (std::size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(packed.data[(2 * 16 + 1) * 4 + i], packed.q[20 + 16 + i] | 0x80);
    EXPECT_EQ(packed.data[(3 * 16 + 1) * 4 + i], 0x88);
    EXPECT_EQ(packed.data[(2 * 16 + 3) * 4 + i], 0x88);
  }
}

TEST(QuantizedPack, DequantizesGroupsToTheNearestFloats) {
  for (const QuantizedFormat& format : kPackFormats) {
    SCOPED_TRACE(name_of(format));
    const Packed packed(19, 300, format);
    std::vector<float> group(static_cast<std::size_t>(format.group_size));
    for (std::int64_t n = 0; n < 19; ++n) {
      for (std::int64_t g = 0; g < packed.matrix.groups(); ++g) {
        dequantize_group(packed.matrix, n, g, group.data());
        for (std::int64_t i = 0; i < format.group_size; ++i) {
          ASSERT_EQ(group[static_cast<std::size_t>(i)],
                    static_cast<float>(reference::load(packed.matrix, n, g * format.group_size + i)));
        }
      }
    }
  }
}

TEST(QuantizedPack, ScalesThatAreNotFiniteGiveNoFiniteWeights) {
  Packed packed(1, 32, {8, 32});
  std::vector<float> group(32);
  for (const float bad : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
    packed.scales[0] = to_f16(bad);
    dequantize_group(packed.matrix, 0, 0, group.data());
    for (const float value : group) EXPECT_FALSE(std::isfinite(value));
  }
}

}  // namespace
}  // namespace pagoda::kernels

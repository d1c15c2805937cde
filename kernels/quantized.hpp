#pragma once

#include <array>
#include <cstdint>

#include "kernels/dtype.hpp"

namespace pagoda::kernels {

/// Tables of 16 values. 4-bit integers are indices into the table.
enum class Codebook : std::uint8_t {
  none,    ///< no table: the integers are the values
  iq4_nl,  ///< GGUF's IQ4_NL and IQ4_XS (kvalues_iq4nl of ggml-common.h)
  nf4,     ///< the quantiles of a normal distribution (QLoRA, arXiv 2305.14314, appendix E), rounded to units of 1/112
  fp4,     ///< bitsandbytes' 4-bit floats, in units of 1/120
  e2m1,    ///< 4-bit floats with 2 exponent bits (OCP Microscaling formats, section 5.3.3), in units of 1/2
};

/// Returns the values in the order of their indices; zeros for Codebook::none.
constexpr std::array<std::int8_t, 16> values_of(Codebook codebook) {
  switch (codebook) {
    case Codebook::none:
      break;
    case Codebook::iq4_nl:
      return {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};
    case Codebook::nf4:
      return {-112, -78, -59, -44, -32, -21, -10, 0, 9, 18, 28, 38, 49, 63, 81, 112};
    case Codebook::fp4:
      return {0, 1, 80, 120, 40, 60, 20, 30, 0, -1, -80, -120, -40, -60, -20, -30};
    case Codebook::e2m1:
      return {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};
  }
  return {};
}

/// Version of what is stored in files of packed weights (io/packed_cache): the layout of panels, and how weights are
/// rounded to integers. Raise it when either changes; tests/engine/weights/quantized_layout_test.cpp notices.
inline constexpr int kQuantizedLayoutVersion = 2;

/// Format of weights that are stored as small integers.
struct QuantizedFormat {
  int bits = 8;  ///< 2, 3, 4, 5, 6 or 8; 2 and 3 run on a CPU only
  /// Number of columns that share a scale: a multiple of 16 (of 32 if bits is 5), at most kMaxGroupSize.
  std::int64_t group_size = 64;
  bool asymmetric = false;  ///< whether the columns of a group also share a minimum
  /// Whether the columns were rotated before they were quantised; x is then rotated, too, before it is quantised
  /// (kernels/rotation.hpp), and the group size is a multiple of kRotationBlock.
  bool rotated = false;
  Codebook codebook = Codebook::none;  ///< other than none only with 4 bits in a symmetric format
  /// Whether kTwoLevelColumns columns share a float16 scale (and minimum), which each group multiplies by a factor of
  /// its own, a signed byte. The group size then divides kTwoLevelColumns, and bits is less than 8.
  bool two_level_scales = false;
  /// Whether kAffineColumns columns of a row share a multiplier and an offset, which make a byte of each stored
  /// integer: offset + multiplier * q. Groups of these bytes are multiplied as those of an 8-bit format. The format
  /// must be rotated and not asymmetric, with 4 or 6 bits, and runs on a CPU only.
  bool affine = false;

  bool operator==(const QuantizedFormat&) const = default;

  /// Returns the bits of the integers that are multiplied: 8 with a codebook, whose values are bytes, and in an affine
  /// format.
  constexpr int value_bits() const { return codebook == Codebook::none && !affine ? bits : 8; }
  /// Returns whether the integers of x are bounded in pairs: |q[2 i] + q[2 i + 1]| <= 128. Then the sum of two products
  /// of bytes fits 16 bits (255 * 128 <= 32767), for which AVX2 has an instruction. Rotated columns have similar
  /// magnitudes, so the bound costs them little precision.
  constexpr bool pairs_bounded() const { return rotated && value_bits() == 8; }
  /// Returns the number that is subtracted from the unsigned integers that are multiplied: the middle of their range,
  /// so that the differences lie in [-zero_point(), zero_point() - 1]; 0 in an asymmetric format.
  constexpr int zero_point() const { return asymmetric ? 0 : 1 << (value_bits() - 1); }
  /// Returns the value of a stored integer in units of the scale (in an asymmetric format, its distance from the
  /// minimum). Not for an affine format.
  constexpr int value_of(int q) const {
    return codebook == Codebook::none ? q - zero_point() : values_of(codebook)[static_cast<std::size_t>(q)];
  }
  /// Returns the stored integer of columns that pad a row: an integer with value_of() 0 if the format has such an
  /// integer. x is 0 in these columns.
  constexpr int padding_value() const {
    if (affine) return 0;
    return codebook == Codebook::none ? zero_point() : codebook == Codebook::nf4 ? 7 : 0;
  }
  /// Returns the number of columns that share a factor; 0 if the format has no factors.
  constexpr std::int64_t factor_columns() const;
};

constexpr std::int64_t kMaxGroupSize = 256;
constexpr std::int64_t kTwoLevelColumns = 256;
constexpr std::int64_t kAffineColumns = 32;

constexpr std::int64_t QuantizedFormat::factor_columns() const {
  if (affine) return kAffineColumns;
  return two_level_scales ? group_size : 0;
}

/// Formats that `--quantize` chooses.
constexpr QuantizedFormat kInt8Weights{8, 128, false, true};
constexpr QuantizedFormat kPlainInt4Weights{4, 32};  ///< for --quantize int4 on a GPU
constexpr QuantizedFormat kInt4Weights{.bits = 4, .group_size = 128, .rotated = true, .affine = true};
constexpr QuantizedFormat kInt6Weights{.bits = 6, .group_size = 128, .rotated = true, .affine = true};

/// Number of rows that are interleaved in a panel.
constexpr std::int64_t kQuantizedPanel = 16;

/// A weight matrix of small integers with one scale per row and group of columns. An asymmetric format also has one
/// minimum per row and group, the weight that q = 0 stands for:
///
///     symmetric:   w[n, k] = scales[n, k / group_size] * (q[n, k] - zero_point)
///     asymmetric:  w[n, k] = scales[n, k / group_size] * q[n, k] + mins[n, k / group_size]
///     codebook:    w[n, k] = scales[n, k / group_size] * values[q[n, k]]
///     affine:      w[n, k] = scales[n, k / group_size] * (offsets[n, k / 32] + multipliers[n, k / 32] * q[n, k])
///
/// With two-level scales, the scale is scales[n, k / 256] * factors[n, k / group_size], and the minimum is the product
/// of a shared minimum and a factor in the same way. In an affine format, offset + multiplier * q lies
/// in [-128, 127], and multipliers are not negative.
///
/// Any file format with this arithmetic can be converted to this layout: GGUF's Q8_0, Q6_K, Q5_0 and Q4_0 are
/// symmetric; Q4_1, Q5_1, Q5_K and Q4_K (which subtracts its minimum) are asymmetric. AWQ and GPTQ with explicit zero
/// points have the minimum -scale * zero, whose rounding to float16 shifts a group by at most zero / 2048 of a step.
/// GGUF's blocks of 256 weights have two_level_scales. The struct does not own its memory.
///
/// In a rotated format, w is the matrix of rotated weights.
///
/// Rows are stored in panels of kQuantizedPanel. The last panel is padded with rows of scale and minimum 0. Columns are
/// padded with padding_value() to a multiple of the group size (in a rotated format, after the last rotation block).
///   8 bits: data is [panel, columns / 4, row, 4 columns]
///   2 bits: data is [panel, columns / 16, row, 4 bytes]; bits 2 s and 2 s + 1 of byte i are column 4 s + i of 16
///   3 bits: data is [panel, columns / 16, 96 bytes]: the lowest 2 bits of 16 columns as above, then [row, 2 bytes], a
///           word whose bits 0, 8, 4 and 12 are the highest bits of columns 0 to 3; the bits s positions above them
///           are the highest bits of columns 4 s to 4 s + 3
///   4 bits: data is [panel, columns / 8, row, 4 bytes]; byte i of eight columns holds column i in its low half and
///           column i + 4 in its high half
///   5 bits: data is [panel, columns / 32, 5, row, 4 bytes]: the first four words hold the lowest 4 bits of 32 columns
///           as above; in the fifth, bit s of byte i is the highest bit of column 4 s + i
///   6 bits: data is [panel, columns / 16, 3, row, 4 bytes]: the first two words hold the lowest 4 bits of 16 columns
///           as above; in the third, bits 2 s and 2 s + 1 of byte i are the highest bits of column 4 s + i
///   scales and mins are [panel, group, row]; in a format with two-level scales [panel, column / kTwoLevelColumns, row]
///   factors are [panel, group, row]; in an asymmetric format [panel, group, 2, row]: first the scale's, then the
///   minimum's; in an affine format [panel, column / kAffineColumns, 2, row]: first the multiplier, then the offset
struct QuantizedMatrix {
  const std::uint8_t* data = nullptr;  ///< aligned to 64 bytes
  const Float16* scales = nullptr;     ///< aligned to 64 bytes
  std::int64_t rows = 0;               ///< output features
  std::int64_t columns = 0;            ///< input features
  QuantizedFormat format = {};
  const Float16* mins = nullptr;         ///< aligned to 64 bytes; null in a symmetric format
  const std::int8_t* factors = nullptr;  ///< null without two-level scales in a format that is not affine
  /// [columns]: column k of the matrix is multiplied by column order[k] of x (GPTQ's act-order sorts columns into
  /// groups). Null = column k of x; always null in a rotated format.
  const std::int32_t* order = nullptr;

  std::int64_t groups() const { return (columns + format.group_size - 1) / format.group_size; }
  std::int64_t padded_columns() const { return groups() * format.group_size; }
  std::int64_t panels() const { return (rows + kQuantizedPanel - 1) / kQuantizedPanel; }
  std::int64_t panel_bytes() const { return kQuantizedPanel * padded_columns() * format.bits / 8; }
  /// Returns the number of columns that share a float16 scale.
  std::int64_t scale_columns() const { return format.two_level_scales ? kTwoLevelColumns : format.group_size; }
  std::int64_t panel_scales() const { return kQuantizedPanel * ((columns + scale_columns() - 1) / scale_columns()); }
  /// Returns the factors of the rows of a panel for the columns that share a factor.
  std::int64_t shared_factors() const { return kQuantizedPanel * (format.asymmetric || format.affine ? 2 : 1); }
  std::int64_t panel_factors() const {
    return format.factor_columns() == 0 ? 0 : padded_columns() / format.factor_columns() * shared_factors();
  }
  std::int64_t data_bytes() const { return panels() * panel_bytes(); }
  std::int64_t scale_bytes() const { return panels() * panel_scales() * static_cast<std::int64_t>(sizeof(Float16)); }
  std::int64_t min_bytes() const { return format.asymmetric ? scale_bytes() : 0; }
  std::int64_t factor_bytes() const { return panels() * panel_factors(); }
  std::int64_t order_bytes() const { return order == nullptr ? 0 : columns * std::int64_t{sizeof(std::int32_t)}; }
  std::int64_t bytes() const { return data_bytes() + scale_bytes() + min_bytes() + factor_bytes() + order_bytes(); }
};

}  // namespace pagoda::kernels

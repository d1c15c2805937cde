#pragma once

#include <array>
#include <cstdint>

#include "kernels/dtype.hpp"

namespace pagoda::kernels {

/// Tables of 16 values that integers of 4 bits are indices into.
enum class Codebook : std::uint8_t {
  none,    ///< the integers are values themselves
  iq4_nl,  ///< GGUF's IQ4_NL and IQ4_XS (kvalues_iq4nl of ggml-common.h)
  nf4,     ///< the quantiles of a normal distribution (QLoRA, arXiv 2305.14314, appendix E) in 112ths, to the nearest
  fp4,     ///< bitsandbytes' floats of 4 bits, in 120ths
  e2m1,    ///< floats of 4 bits with 2 of exponent (OCP Microscaling formats, section 5.3.3), in halves
};

/// The values in the order of their indices.
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

/// How weights are stored as small integers.
struct QuantizedFormat {
  int bits = 8;  ///< 2, 3, 4, 5, 6 or 8; of 2 and 3 on a CPU only
  /// Columns that share a scale: a multiple of 16, with 5 bits of 32; at most kMaxGroupSize.
  std::int64_t group_size = 64;
  bool asymmetric = false;  ///< they also share a minimum
  /// The integers are those of rotated columns, and x is rotated before it is quantised (kernels/rotation.hpp). The
  /// group size is a multiple of kRotationBlock then.
  bool rotated = false;
  Codebook codebook = Codebook::none;  ///< of 4 bits in a symmetric format
  /// kTwoLevelColumns share a float16 scale (and minimum), and each group multiplies it with a factor, a signed byte.
  /// The group size divides kTwoLevelColumns, and the bits are less than 8.
  bool two_level_scales = false;

  bool operator==(const QuantizedFormat&) const = default;

  /// Of the integers that are multiplied, which the values of a codebook make 8 bits.
  constexpr int value_bits() const { return codebook == Codebook::none ? bits : 8; }
  /// The integers of x that weights meet are bounded: those of columns 2 i and 2 i + 1 add up to 128 in magnitude at
  /// most, so that two products of bytes fit 16 bits (255 * 128 <= 32767), for which AVX2 has an instruction. Rotated
  /// columns are alike, and lose little by it.
  constexpr bool bounds_pairs() const { return rotated && value_bits() == 8; }
  /// What is subtracted from the integers that are multiplied, which are unsigned: in the middle of them, so that
  /// what is left is from -zero_point() to zero_point() - 1; in an asymmetric format nothing.
  constexpr int zero_point() const { return asymmetric ? 0 : 1 << (value_bits() - 1); }
  /// What a stored integer is in units of the scale (in an asymmetric format, above the minimum).
  constexpr int value_of(int q) const {
    return codebook == Codebook::none ? q - zero_point() : values_of(codebook)[static_cast<std::size_t>(q)];
  }
  /// The stored integer of columns that fill up a row: 0 where there is one, and x is 0 there.
  constexpr int padding_value() const {
    return codebook == Codebook::none ? zero_point() : codebook == Codebook::nf4 ? 7 : 0;
  }
};

constexpr std::int64_t kMaxGroupSize = 256;
constexpr std::int64_t kTwoLevelColumns = 256;

/// The formats of `--quantize`.
constexpr QuantizedFormat kInt8Weights{8, 128, false, true};
constexpr QuantizedFormat kPlainInt4Weights{4, 32};  ///< of --quantize int4 on a GPU
constexpr QuantizedFormat kInt4Weights{.bits = 4, .group_size = 32, .asymmetric = true, .two_level_scales = true};

/// Rows that lie interleaved.
constexpr std::int64_t kQuantizedPanel = 16;

/// A weight matrix of small integers with one scale per row and group of columns, and in an asymmetric format one
/// minimum, the weight that q = 0 stands for:
///
///     symmetric:   w[n, k] = scales[n, k / group_size] * (q[n, k] - zero_point)
///     asymmetric:  w[n, k] = scales[n, k / group_size] * q[n, k] + mins[n, k / group_size]
///     codebook:    w[n, k] = scales[n, k / group_size] * values[q[n, k]]
///     two_level_scales:    scales[n, k / 256] * factors[n, k / group_size] in place of the scale, minimums likewise
///
/// Any file format with this arithmetic can be brought into this layout: GGUF's Q8_0, Q6_K, Q5_0 and Q4_0 are
/// symmetric, Q4_1, Q5_1, Q5_K and Q4_K (which subtracts its minimum) asymmetric; AWQ and GPTQ with zero points of
/// their own have the minimum -scale * zero, whose rounding to float16 moves a group by at most zero / 2048 of a step.
/// GGUF's blocks of 256 weights are two_level_scales. Not owned.
///
/// Where the format is rotated, w stands for the rotated weights.
///
/// Rows lie in panels of kQuantizedPanel, of which the last is filled up with rows of scale and minimum 0; columns are
/// filled up with padding_value() to a multiple of the group size (rotated ones from the end of the last block on).
///   8 bits: data is [panel, columns / 4, row, 4 columns]
///   2 bits: data is [panel, columns / 16, row, 4 bytes]; bits 2 s and 2 s + 1 of byte i are column 4 s + i of 16
///   3 bits: data is [panel, columns / 16, 96 bytes]; of 16 columns the lowest 2 bits as above, then [row, 2 bytes], a
///           word whose bits 0, 8, 4 and 12 are the highest of columns 0 to 3; s places above them are those of columns
///           4 s to 4 s + 3
///   4 bits: data is [panel, columns / 8, row, 4 bytes]; byte i of eight columns holds column i in its low half and
///           column i + 4 in its high half
///   5 bits: data is [panel, columns / 32, 5, row, 4 bytes]; the first four of 32 columns are their lowest 4 bits as
///           above; then bit s of byte i is the highest of column 4 s + i
///   6 bits: data is [panel, columns / 16, 3, row, 4 bytes]; the first two of 16 columns are their lowest 4 bits as
///           above; then bits 2 s and 2 s + 1 of byte i are the highest of column 4 s + i
///   scales and mins are [panel, group, row]; in a format with two-level scales [panel, column / kTwoLevelColumns, row]
///   factors are [panel, group, row], in an asymmetric format [panel, group, 2, row]: of the scale, of the minimum
struct QuantizedMatrix {
  const std::uint8_t* data = nullptr;  ///< aligned to 64 bytes
  const Float16* scales = nullptr;     ///< likewise
  std::int64_t rows = 0;               ///< output features
  std::int64_t columns = 0;            ///< input features
  QuantizedFormat format = {};
  const Float16* mins = nullptr;         ///< aligned likewise; of an asymmetric format, null in a symmetric one
  const std::int8_t* factors = nullptr;  ///< of a format with two-level scales, else null
  /// [columns]: column k of the matrix meets column order[k] of x (GPTQ's act-order sorts columns into groups). Null =
  /// it meets column k; so it is where the format is rotated.
  const std::int32_t* order = nullptr;

  std::int64_t groups() const { return (columns + format.group_size - 1) / format.group_size; }
  std::int64_t padded_columns() const { return groups() * format.group_size; }
  std::int64_t panels() const { return (rows + kQuantizedPanel - 1) / kQuantizedPanel; }
  std::int64_t panel_bytes() const { return kQuantizedPanel * padded_columns() * format.bits / 8; }
  /// Columns that share a scale in float16.
  std::int64_t scale_columns() const { return format.two_level_scales ? kTwoLevelColumns : format.group_size; }
  std::int64_t panel_scales() const { return kQuantizedPanel * ((columns + scale_columns() - 1) / scale_columns()); }
  std::int64_t group_factors() const {
    return format.two_level_scales ? kQuantizedPanel * (format.asymmetric ? 2 : 1) : 0;
  }
  std::int64_t panel_factors() const { return groups() * group_factors(); }
  std::int64_t data_bytes() const { return panels() * panel_bytes(); }
  std::int64_t scale_bytes() const { return panels() * panel_scales() * static_cast<std::int64_t>(sizeof(Float16)); }
  std::int64_t min_bytes() const { return format.asymmetric ? scale_bytes() : 0; }
  std::int64_t factor_bytes() const { return panels() * panel_factors(); }
  std::int64_t order_bytes() const { return order == nullptr ? 0 : columns * std::int64_t{sizeof(std::int32_t)}; }
  std::int64_t bytes() const { return data_bytes() + scale_bytes() + min_bytes() + factor_bytes() + order_bytes(); }
};

}  // namespace pagoda::kernels

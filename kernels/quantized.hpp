#pragma once

#include <cstdint>

#include "kernels/dtype.hpp"

namespace pagoda::kernels {

/// How weights are stored as small integers.
struct QuantizedFormat {
  int bits = 8;                  ///< 8 or 4
  std::int64_t group_size = 64;  ///< columns that share a scale: a multiple of 16, at most kMostGroupSize
  bool asymmetric = false;       ///< they also share a minimum
  /// The integers are those of rotated columns, and x is rotated before it is quantised (kernels/rotation.hpp). The
  /// group size is a multiple of kRotationBlock then.
  bool rotated = false;

  bool operator==(const QuantizedFormat&) const = default;

  /// What is subtracted from the stored integers, which are unsigned: in the middle of them, so that q - zero_point()
  /// is from -zero_point() to zero_point() - 1; in an asymmetric format nothing.
  constexpr int zero_point() const { return asymmetric ? 0 : 1 << (bits - 1); }
};

constexpr std::int64_t kMostGroupSize = 256;
/// The formats of `--quantize`.
constexpr QuantizedFormat kInt8Weights{8, 128, false, true};
constexpr QuantizedFormat kInt4Weights{4, 32};

/// Rows that lie interleaved.
constexpr std::int64_t kQuantizedPanel = 16;

/// A weight matrix of small integers with one scale per row and group of columns, and in an asymmetric format one
/// minimum, the weight that q = 0 stands for:
///
///     symmetric:   w[n, k] = scales[n, k / group_size] * (q[n, k] - zero_point)
///     asymmetric:  w[n, k] = scales[n, k / group_size] * q[n, k] + mins[n, k / group_size]
///
/// Any file format with this arithmetic can be brought into this layout: GGUF's Q8_0 and Q4_0 are symmetric, Q4_1 and
/// Q4_K (which subtracts its minimum) asymmetric; AWQ and GPTQ with zero points of their own have the minimum -scale *
/// zero, whose rounding to float16 moves a group by at most zero / 2048 of a step. Q4_K's scales and minimums have 17
/// bits: rounding them to float16 moves a weight by at most 15 / 2048 of a step, and a group by 2^-11 of its minimum.
/// Not owned.
///
/// Where the format is rotated, w stands for the rotated weights.
///
/// Rows lie in panels of kQuantizedPanel, of which the last is filled up with rows of scale and minimum 0; columns are
/// filled up with zero_point to a multiple of the group size (rotated ones from the end of the last block on).
///   8 bits: data is [panel, columns / 4, row, 4 columns]
///   4 bits: data is [panel, columns / 8, row, 4 bytes]; byte i of eight columns holds column i in its low half and
///           column i + 4 in its high half
///   scales and mins are [panel, group, row]
struct QuantizedMatrix {
  const std::uint8_t* data = nullptr;  ///< aligned to 64 bytes
  const Float16* scales = nullptr;     ///< likewise
  std::int64_t rows = 0;               ///< output features
  std::int64_t columns = 0;            ///< input features
  QuantizedFormat format = {};
  const Float16* mins = nullptr;  ///< aligned likewise; of an asymmetric format, null in a symmetric one

  std::int64_t groups() const { return (columns + format.group_size - 1) / format.group_size; }
  std::int64_t padded_columns() const { return groups() * format.group_size; }
  std::int64_t panels() const { return (rows + kQuantizedPanel - 1) / kQuantizedPanel; }
  std::int64_t panel_bytes() const { return kQuantizedPanel * padded_columns() * format.bits / 8; }
  std::int64_t panel_scales() const { return kQuantizedPanel * groups(); }
  std::int64_t data_bytes() const { return panels() * panel_bytes(); }
  std::int64_t scale_bytes() const { return panels() * panel_scales() * static_cast<std::int64_t>(sizeof(Float16)); }
  std::int64_t min_bytes() const { return format.asymmetric ? scale_bytes() : 0; }
  std::int64_t bytes() const { return data_bytes() + scale_bytes() + min_bytes(); }
};

}  // namespace pagoda::kernels

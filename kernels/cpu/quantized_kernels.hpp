#pragma once

/// The inner loops of quantised products (part of the table of an instruction set, see kernel_table.hpp).
///
/// Rows of x are quantised when they are used, to integers from -127 to 127 with a scale per group of columns. In a
/// rotated format they are rotated first. Then
///
///     out[m, n] = sum over groups g, ascending, of (w_scale[n, g] * x_scale[m, g]) * dot(n, m, g)
///                                                  + w_min[n, g] * x_sum[m, g]   (asymmetric weights only)
///
/// where the dot of integers is exact. The product of the scales is rounded once. x_sum, the scale of x times the exact
/// sum of its integers, is rounded once, too. A fused multiply-add adds each term to the sum, the term of the dot
/// before the term of the minimum. So every instruction set gives the same bits, in any batch.

#include <cstdint>

#include "kernels/dtype.hpp"
#include "kernels/quantized.hpp"

namespace pagoda::kernels {

/// Arguments for one row of x. scale = h / 127, q = x / scale rounded to the nearest integer. h is the highest |x| of
/// the group, or, if pairs are bounded, the highest |x[2 i] + x[2 i + 1]| if that is more: a sum of at most 127 grows
/// by at most 1 in rounding. A value that is not finite makes the group's scale NaN.
struct QuantizeRowArgs {
  const float* x = nullptr;             ///< [columns]
  const std::int32_t* order = nullptr;  ///< order of the columns of x, as in QuantizedMatrix; null = unchanged
  std::int64_t columns = 0;
  std::int64_t group_size = 0;
  bool rotated = false;         ///< whether x is rotated first (kernels/rotation.hpp)
  std::int32_t zero_point = 0;  ///< zero_point() of the weights' format
  int value_bits = 8;           ///< value_bits() of the weights' format
  bool pairs_bounded = false;   ///< pairs_bounded() of the weights' format
  std::int8_t* q = nullptr;     ///< [columns padded with 0 to a multiple of the group size], in the layout of `tile`
  float* scales = nullptr;      ///< [groups]
  std::int32_t* offsets = nullptr;  ///< [groups]: -zero_point * sum of q, the start values of the sums of integers
  float* sums = nullptr;            ///< [groups]: scale * sum of q; may be null
  float* affine_sums = nullptr;     ///< [columns / kAffineColumns, padded as q]: sum of q; may be null
};

/// Product of rows of x and some panels of weights, for some groups.
struct QuantizedTileArgs {
  const std::int8_t* x = nullptr;   ///< output of quantize_row, from the first group on
  std::int64_t x_stride = 0;        ///< bytes from one row to the next
  const float* x_scales = nullptr;  ///< from the first group on, as x_offsets and x_sums
  const std::int32_t* x_offsets = nullptr;
  const float* x_sums = nullptr;  ///< only read if w_mins is not null
  /// Sums of the integers of each kAffineColumns columns, from the first group on. The elements from one row to the
  /// next are group_stride * group_size / kAffineColumns. Not null if w_affine is not null.
  const float* x_affine_sums = nullptr;
  std::int64_t group_stride = 0;    ///< elements from one row's scales, offsets and sums to the next row's
  std::int64_t rows = 0;            ///< 1 .. QuantizedKernels::rows
  const std::uint8_t* w = nullptr;  ///< as in QuantizedMatrix, from the first group on
  std::int64_t w_stride = 0;        ///< bytes from one panel to the next
  const Float16* w_scales = nullptr;
  const Float16* w_mins = nullptr;         ///< null = symmetric
  std::int64_t w_scale_stride = 0;         ///< scales (and minimums) from one panel to the next
  const std::int8_t* w_factors = nullptr;  ///< null = the format has no two-level scales
  const std::int8_t* w_affine = nullptr;   ///< multipliers and offsets; null = w is not affine, or unpacked
  std::int64_t w_factor_stride = 0;        ///< factors, or multipliers and offsets, from one panel to the next
  std::int64_t panels = 0;                 ///< 1 .. QuantizedKernels::panels
  std::int64_t num_groups = 0;
  std::int64_t group_size = 0;
  int bits = 8;
  Codebook codebook = Codebook::none;
  bool pairs_bounded = false;   ///< pairs_bounded() of the weights' format, which x was quantised for
  bool unpacked = false;        ///< whether w is output of `unpack`; otherwise it is laid out as in QuantizedMatrix
  float* sums = nullptr;        ///< [rows, panels * kQuantizedPanel]; successive calls continue the sums
  bool starts_at_zero = false;  ///< whether the sums start at 0; otherwise at their old values
  /// Weights of later calls, in the same number of panels: the call prefetches cache lines [first_line, end_line) of
  /// each group. Null = none.
  const std::uint8_t* ahead = nullptr;
  std::int64_t ahead_stride = 0;
  std::int64_t ahead_group_bytes = 0;
  std::int64_t first_line = 0;
  std::int64_t end_line = 0;
};

/// Fits a grid (scale * integer + min) of small squared error to one group of each row of a panel.
struct FitGridsArgs {
  const float* w = nullptr;  ///< [columns, kQuantizedPanel]
  std::int64_t columns = 0;  ///< at least 1
  int lowest = 0;            ///< lowest integer of the format; below 0 in a symmetric grid
  int highest = 0;           ///< highest integer of the format
  /// Whether several grids are tried; if not, a symmetric grid maps the highest |w| to the highest integer.
  bool search = true;
  /// [kQuantizedPanel], rounded to float16; not finite if a weight is not finite or the value is outside float16's
  /// range.
  float* scales = nullptr;
  float* mins = nullptr;  ///< [kQuantizedPanel], rounded to float16; null = a symmetric grid
};

/// Fits what an affine format stores for a group of each row of a panel.
struct FitAffineArgs {
  const float* w = nullptr;  ///< [columns, kQuantizedPanel]
  std::int64_t columns = 0;  ///< 1 .. kMaxGroupSize
  int highest = 0;           ///< highest integer of the format; the lowest is 0
  float* scales = nullptr;   ///< [kQuantizedPanel], rounded to float16; not finite as in FitGridsArgs
  /// [columns / kAffineColumns, rounded up, 2, kQuantizedPanel]: multipliers and offsets
  std::int8_t* affine = nullptr;
};

/// Columns of a panel, in whole groups, that are made bytes.
struct UnpackArgs {
  int bits = 8;
  Codebook codebook = Codebook::none;
  const std::uint8_t* from = nullptr;   ///< as in QuantizedMatrix
  const std::int8_t* affine = nullptr;  ///< multipliers and offsets of these columns; null = the format is not affine
  std::int64_t columns = 0;
  std::uint8_t* to = nullptr;
};

struct QuantizedKernels {
  int rows = 0;    ///< maximum rows of x in a tile
  int panels = 0;  ///< maximum panels of weights in a tile
  /// Bytes per column of x, and per unpacked weight, if the weights' values have 8 bits and pairs are not bounded: 2 if
  /// bytes are multiplied as 16-bit integers. In other formats both take one byte.
  int bytes_at_8_bits = 1;
  void (*quantize_row)(const QuantizeRowArgs& args);
  void (*tile)(const QuantizedTileArgs& args);
  void (*fit_grids)(const FitGridsArgs& args);
  void (*fit_affine)(const FitAffineArgs& args);
  /// Unpacks weights to scratch, where several tiles read them.
  void (*unpack)(const UnpackArgs& args);
};

}  // namespace pagoda::kernels

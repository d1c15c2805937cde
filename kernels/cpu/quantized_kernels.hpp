#pragma once

/// The inner loops of quantised products (part of the table of an instruction set, see kernel_table.hpp).
///
/// Rows of x are quantised when they are used, rotated before where the format is: a scale per group of columns,
/// integers from -127 to 127. Then
///
///     out[m, n] = sum over groups g, ascending, of (w_scale[n, g] * x_scale[m, g]) * dot(n, m, g)
///                                                  + w_min[n, g] * x_sum[m, g]   (asymmetric weights only)
///
/// where the dot of integers is exact, and the product of the scales is rounded once, as is x_sum, the scale of x times
/// the exact sum of its integers. Each term joins the sum by a fused multiply-add, that of the dot before that of the
/// minimum. So every instruction set gives the same bits, in any batch.

#include <cstdint>

#include "kernels/dtype.hpp"
#include "kernels/quantized.hpp"

namespace pagoda::kernels {

/// scale = most / 127, q = x / scale to the nearest integer, where most is the highest |x| of the group, or where pairs
/// are bounded the highest |x[2 i] + x[2 i + 1]| if that is more: to a sum of 127 rounding adds 1 at most. A value that
/// is not finite makes the group's scale NaN.
struct QuantizeRowArgs {
  const float* x = nullptr;             ///< [columns]
  const std::int32_t* order = nullptr;  ///< of x, as in QuantizedMatrix
  std::int64_t columns = 0;
  std::int64_t group_size = 0;
  bool rotated = false;             ///< x is rotated first (kernels/rotation.hpp)
  std::int32_t zero_point = 0;      ///< of the weights that x will meet
  int value_bits = 8;               ///< likewise
  bool bounds_pairs = false;        ///< likewise
  std::int8_t* q = nullptr;         ///< [columns, filled up with 0 to a multiple of the group size], as tile wants it
  float* scales = nullptr;          ///< [groups]
  std::int32_t* offsets = nullptr;  ///< [groups]: -zero_point * sum of q, where the sums of integers start
  float* sums = nullptr;            ///< [groups]: scale * sum of q; may be null
};

/// Rows of x against some panels of weights, for some groups.
struct QuantizedTileArgs {
  const std::int8_t* x = nullptr;   ///< of quantize_row, from the first group on
  std::int64_t x_stride = 0;        ///< bytes from one row to the next
  const float* x_scales = nullptr;  ///< likewise
  const std::int32_t* x_offsets = nullptr;
  const float* x_sums = nullptr;    ///< when there are w_mins
  std::int64_t group_stride = 0;    ///< from one row's scales, offsets and sums to the next's
  std::int64_t rows = 0;            ///< 1 .. QuantizedKernels::rows
  const std::uint8_t* w = nullptr;  ///< as in QuantizedMatrix, from the first group on
  std::int64_t w_stride = 0;        ///< bytes from one panel to the next
  const Float16* w_scales = nullptr;
  const Float16* w_mins = nullptr;         ///< null = symmetric
  std::int64_t w_scale_stride = 0;         ///< elements from one panel to the next, of scales and minimums
  const std::int8_t* w_factors = nullptr;  ///< null = each group has a scale of its own
  std::int64_t w_factor_stride = 0;        ///< from one panel to the next
  std::int64_t panels = 0;                 ///< 1 .. QuantizedKernels::panels
  std::int64_t num_groups = 0;
  std::int64_t group_size = 0;
  int bits = 8;
  Codebook codebook = Codebook::none;
  bool bounds_pairs = false;  ///< see QuantizedFormat; x is stored so
  bool unpacked = false;      ///< w is what unpack has made
  float* sums = nullptr;      ///< [rows, panels * kQuantizedPanel], continued from call to call
  bool first = false;         ///< they start at 0
  /// Weights of later calls, in as many panels: lines [first_line, end_line) of each group are prefetched. Null = none.
  const std::uint8_t* ahead = nullptr;
  std::int64_t ahead_stride = 0;
  std::int64_t ahead_group_bytes = 0;
  std::int64_t first_line = 0;
  std::int64_t end_line = 0;
};

/// A group of the rows of a panel: for each the grid (scale * integer + min) of least squared error that is found.
struct FitGridsArgs {
  const float* w = nullptr;  ///< [columns, kQuantizedPanel]
  std::int64_t columns = 0;  ///< at least 1
  int lowest = 0;            ///< integer that there is; in a symmetric grid below 0
  int highest = 0;
  bool search = true;  ///< else, of a symmetric grid, the highest |w| is the highest integer
  /// [kQuantizedPanel], as float16 holds them; not finite where a weight is not, or where float16 does not reach.
  float* scales = nullptr;
  float* mins = nullptr;  ///< likewise; null = a symmetric grid
};

struct QuantizedKernels {
  int rows = 0;    ///< most rows of x in a tile
  int panels = 0;  ///< most panels of weights in a tile
  /// Bytes that a column of x takes where the weights' values have 8 bits and pairs are not bounded, and such a weight
  /// where it is unpacked: 2 where bytes are multiplied as 16-bit integers. Else both take one.
  int bytes_at_8_bits = 1;
  void (*quantize_row)(const QuantizeRowArgs& args);
  void (*tile)(const QuantizedTileArgs& args);
  void (*fit_grids)(const FitGridsArgs& args);
  /// Columns of a panel, whole groups of them, to scratch, from where several tiles read them.
  void (*unpack)(int bits, Codebook codebook, const std::uint8_t* src, std::int64_t columns, std::uint8_t* dst);
};

}  // namespace pagoda::kernels

#pragma once

/// The inner loops of linear layers and of attention on a matrix unit (part of the table of an instruction set, see
/// kernel_table.hpp).
///
/// bfloat16 weights: out[m, n] = sum of x[m, k] * w[n, k], x rounded to bfloat16. The sum of each step of kMatrixStep
/// columns consists of two chains of multiply-adds, one for the even columns and one for the odd ones, which are added
/// at its end. Steps are added in ascending order. Subnormal numbers count as 0. (See TDPBF16PS in the Intel SDM, vol.
/// 2.) So each result has the same bits in any batch.
///
/// Quantised weights: the sums of QuantizedKernels::tile, with the same bits, because the dots of integers are exact.

#include <cstddef>
#include <cstdint>
#include <numeric>

#include "kernels/cpu/next_rows.hpp"
#include "kernels/cpu/quantized_kernels.hpp"
#include "kernels/quantized.hpp"

namespace pagoda::kernels {

constexpr std::int64_t kMatrixTileRows = 16;  ///< rows of a tile
constexpr std::int64_t kMatrixLine = 64;      ///< bytes of a row of a tile
constexpr std::int64_t kMatrixTileBytes = kMatrixTileRows * kMatrixLine;
constexpr std::int64_t kMatrixBf16Bytes = 2;
constexpr std::int64_t kMatrixStep = 32;       ///< columns of bfloat16 in a row of a tile
constexpr std::int64_t kMatrixPanel = 16;      ///< rows of weights in a panel
constexpr std::int64_t kMatrixBandPanels = 2;  ///< panels that are multiplied at once
constexpr std::int64_t kMatrixBand = kMatrixBandPanels * kMatrixPanel;
constexpr std::int64_t kMatrixStripRows =
    2 * kMatrixTileRows;  ///< rows of a strip: those of x that are multiplied at once
static_assert(kMatrixPanel == kQuantizedPanel);

/// Product of few rows of x and a band of bfloat16 weights as they are stored. Does not prefetch: the hardware does it
/// better.
struct MatrixStreamArgs {
  const std::byte* w = nullptr;     ///< the first row
  std::int64_t w_row_bytes = 0;     ///< bytes from one row to the next
  std::int64_t w_rows = 0;          ///< 1 .. kMatrixBand
  std::int64_t steps = 0;           ///< whole steps
  const std::byte* rest = nullptr;  ///< [kMatrixBand, kMatrixLine]: the step after them, padded with 0; null = none
  const float* x = nullptr;         ///< [tiles, steps, kMatrixStep / 2, columns]: pairs of bfloat16
  std::int64_t x_tile_floats = 0;   ///< elements from one tile of x to the next
  std::int64_t tiles = 0;           ///< tiles of x, at least 1
  std::int64_t columns = 0;         ///< rows of x in a tile, which are columns of the product: 1 .. kMatrixTileRows
  float* sums = nullptr;            ///< [tiles, kMatrixBand, columns]
};

/// A panel of bfloat16 weights as they are stored.
struct MatrixPackArgs {
  const std::byte* w = nullptr;  ///< first column of the first row
  std::int64_t row_bytes = 0;    ///< bytes from one row to the next
  std::int64_t rows = 0;         ///< 1 .. kMatrixPanel; the panel is padded with zeros
  std::int64_t columns = 0;      ///< the last step is padded with zeros
  std::byte* panel = nullptr;    ///< [steps, kMatrixStep / 2, kMatrixPanel, 2]
};

/// Product of rows of x and a packed band of bfloat16 weights, for some steps.
struct MatrixMultiplyArgs {
  const std::byte* x = nullptr;    ///< [strips, steps, kMatrixStripRows, kMatrixStep]
  std::int64_t x_strip_bytes = 0;  ///< bytes from one strip to the next
  std::int64_t rows = 0;           ///< rows of x, at least 1
  const std::byte* w = nullptr;    ///< output of `pack`
  std::int64_t w_panel_bytes = 0;  ///< bytes from one panel to the next
  std::int64_t panels = 0;         ///< 1 .. kMatrixBandPanels
  std::int64_t steps = 0;
  float* sums = nullptr;        ///< [rows, panels * kMatrixPanel]; successive calls continue the sums
  bool starts_at_zero = false;  ///< whether the sums start at 0; otherwise at their old values
};

/// Returns the number of quantised columns that are multiplied at once: the most that divide a group and fit a line.
constexpr std::int64_t quantized_matrix_step(std::int64_t group_size) {
  return std::gcd(group_size, kMatrixLine);
}

/// Product of rows of x and a band of quantised weights, for some groups.
struct MatrixQuantizedArgs {
  /// Output of quantize_row in strips: [strips, columns / step, kMatrixStripRows, step bytes].
  const std::int8_t* x = nullptr;
  std::int64_t x_strip_bytes = 0;   ///< bytes from one strip to the next
  const float* x_scales = nullptr;  ///< [strips, groups, kMatrixStripRows], as are x_sums
  const float* x_sums = nullptr;    ///< only read if w_mins is not null
  std::int64_t scale_stride = 0;    ///< elements from one strip's scales and sums to the next strip's
  std::int64_t rows = 0;            ///< rows of x, at least 1
  /// In an asymmetric format, bytes: output of QuantizedKernels::unpack, or weights of 8 bits. In a symmetric format,
  /// they are signed: output of `subtract`.
  const void* w = nullptr;
  std::int64_t w_panel_bytes = 0;     ///< bytes from one panel to the next
  const Float16* w_scales = nullptr;  ///< as in QuantizedTileArgs, like the members that follow
  const Float16* w_mins = nullptr;
  std::int64_t w_scale_stride = 0;
  const std::int8_t* w_factors = nullptr;
  std::int64_t w_factor_stride = 0;
  std::int64_t panels = 0;  ///< 1 .. kMatrixBandPanels
  std::int64_t num_groups = 0;
  std::int64_t group_size = 0;
  float* sums = nullptr;        ///< [rows, panels * kMatrixPanel]; successive calls continue the sums
  bool starts_at_zero = false;  ///< whether the sums start at 0; otherwise at their old values
};

constexpr std::int64_t kMatrixPositions = 64;  ///< positions of a tile of attention

/// Attention of the query rows of one KV head to a tile of positions, with bfloat16 keys and values: scores are q k^T,
/// q rounded to bfloat16; the softmax is that of SoftmaxTileArgs, up to rounding; the sums of values are those of
/// bfloat16 weights above, over steps of kMatrixStep positions, with probabilities rounded to bfloat16 (halves away
/// from 0). Each row has the same bits in any batch, up to the sign of a zero.
///
/// Arrays by row have room for a multiple of kMatrixTileRows, except for `highest`, `total` and `sums`.
struct MatrixAttentionArgs {
  const float* queries = nullptr;  ///< [tiles of rows, steps, kMatrixStep / 2, kMatrixTileRows]: pairs of bfloat16
  std::int64_t rows = 0;           ///< at least 1; others in the last tile are 0
  std::int64_t head_dim = 0;
  const void* const* keys = nullptr;    ///< [kMatrixPositions], each [head_dim]
  const void* const* values = nullptr;  ///< [kMatrixPositions], each [head_dim]
  std::int64_t first_position = 0;      ///< position of the tile's first key
  /// Some row sees keys [first, end), and none sees others. Their pointers repeat that of a seen position, because
  /// their values are multiplied by 0.
  std::int64_t first = 0;
  std::int64_t end = 0;
  const float* positions = nullptr;   ///< by row, ascending: position of the query, the last that it sees
  const float* first_seen = nullptr;  ///< by row, ascending: the first position that it sees
  float scale = 1.0F;
  float softcap = 0.0F;             ///< 0 = none
  const float* slopes = nullptr;    ///< by row, or null
  float* highest = nullptr;         ///< [rows]
  float* total = nullptr;           ///< [rows]
  float* sums = nullptr;            ///< [rows, width]
  std::int64_t width = 0;           ///< head_dim, rounded up to a multiple of 2 * kMatrixPanel
  std::byte* key_copies = nullptr;  ///< [kMatrixPositions, steps, kMatrixLine], for keys that are not as tiles need
  float* value_pairs = nullptr;     ///< [kMatrixPositions / 2, width]; columns from head_dim on are 0
  NextRows next = {};               ///< rows to prefetch; none with more than kMatrixTileRows query rows
};

struct MatrixKernels {
  /// Number of rows of x from which on the unit is faster with quantised weights, and the smallest groups with which it
  /// is: the dots of each group leave the unit to be scaled. QuantizedKernels::bytes_at_8_bits of the table must be 1.
  std::int64_t min_quantized_rows = 0;
  std::int64_t min_quantized_group = 0;
  void (*stream)(const MatrixStreamArgs& args) = nullptr;  ///< null = the instruction set has no matrix unit
  void (*pack)(const MatrixPackArgs& args) = nullptr;
  void (*multiply)(const MatrixMultiplyArgs& args) = nullptr;
  /// dst[i] = src[i] - zero_point, i < count; dst may be src. Dots with signed weights need no x_offsets.
  void (*subtract)(const std::uint8_t* src, std::int64_t count, int zero_point, std::int8_t* dst) = nullptr;
  void (*multiply_quantized)(const MatrixQuantizedArgs& args) = nullptr;
  void (*attend)(const MatrixAttentionArgs& args) = nullptr;
};

}  // namespace pagoda::kernels

#pragma once

/// The inner loops of the CPU ops, one table per instruction set. Drivers (linear.cpp, attention.cpp, ...) are ordinary
/// code that splits an op into tasks and cache blocks; everything that profits from vectors goes through this table.
///
/// Matrix products are batch-invariant since each result is made of chains of multiply-adds in ascending order, which
/// have the same bits however rows, columns and ranges of k are split between tiles, calls and threads.

#include <cstdint>

#include "kernels/cpu/quantized_kernels.hpp"
#include "kernels/device.hpp"
#include "kernels/dtype.hpp"
#include "kernels/ops.hpp"

namespace pagoda::kernels {

/// What is widened of fp8_e4m3 comes in units of this, which saves a multiplication each: whoever uses the sums of it
/// multiplies by it, which is exact.
constexpr float kFp8Unit = 256.0F;

/// dst[k, r] = rows[r][k] for r in [0, lanes) and k in [0, count): transposes `lanes` rows.
struct PackArgs {
  const float* const* rows = nullptr;  ///< lanes pointers; a row that does not exist repeats another one
  std::int64_t count = 0;              ///< a multiple of lanes; where `paired`, of 2 * lanes
  /// Where bf16_quad is 8: dst[k, r] = rows[r][2k], rows[r][2k + 1], each rounded to bfloat16.
  bool paired = false;
  float* dst = nullptr;  ///< [count, lanes], or [count / 2, lanes]
};

/// c[r, 0..panel) (+)= sum over i < k of x[i * x_pitch + r] * w[i, 0..panel).
struct GemmTileArgs {
  const float* x = nullptr;
  std::int64_t x_pitch = 0;
  bool paired = false;       ///< x and w are pairs of bfloat16, the products of both of which are added
  const float* w = nullptr;  ///< [k, w_pitch]
  std::int64_t w_pitch = 0;
  float* c = nullptr;  ///< [rows, c_pitch]
  std::int64_t c_pitch = 0;
  std::int64_t rows = 0;  ///< 1 .. max_rows
  std::int64_t k = 0;
  bool first = false;  ///< c starts at zero instead of its old value
};

// Linear: out[m, n] = sum of x[m, k] * w[n, k]. Columns are taken in blocks of kLinearBlock, whose sums are added in
// ascending order. A block's sum is four chains, by the place of k within a quad of elements, added at its end: a
// vector of weights holds one quad of each of lanes / 4 rows and meets a broadcast quad of x, so that weights need
// little rearranging. Quads are of consecutive elements; in bfloat16 of every second one: first the even, then the odd
// ones of eight. Where the machine multiplies pairs of bfloat16 (bf16_quad), x is rounded to them, and a quad is of
// four such pairs. There are three kernels with the same sums: linear_stream and linear_register_tiled take weights as
// they lie in memory, for few rows of x and for a few more; linear_tile takes packed weights, for many. 8-bit floats
// have scales for blocks of columns, which are kLinearBlock or less then; linear_register_tiled does not take them.

constexpr std::int64_t kLinearBlock = 512;
/// Columns are padded with zeros to a multiple of this where they are packed.
constexpr std::int64_t kLinearPadding = 32;

/// Packs x for a register tile: dst[step, m, 0..4) = the step-th quad of row m, 16 bytes.
struct PackRowsArgs {
  const float* x = nullptr;  ///< [rows, k], rows x_pitch apart
  std::int64_t rows = 0;
  std::int64_t k = 0;
  std::int64_t x_pitch = 0;
  bool paired = false;   ///< quads as bfloat16 weights have them
  float* dst = nullptr;  ///< [steps, rows, 4]
};

/// Columns [first, first + count) of some rows of a weight matrix.
struct WeightPiece {
  const void* w = nullptr;  ///< column 0 of the first row
  DType dtype = DType::f32;
  std::int64_t rows = 0;       ///< at least 1; a kernel that takes more repeats the last
  std::int64_t row_bytes = 0;  ///< from one row to the next
  std::int64_t first = 0;      ///< a multiple of kLinearBlock
  std::int64_t count = 0;      ///< a multiple of kLinearBlock unless the row ends here
  /// Instead of w and row_bytes: where each row of a whole panel begins (one that does not exist repeats another).
  const void* const* row_pointers = nullptr;
};

/// Where results go: out[m * stride + n] = sum + bias[n], or += that.
struct LinearOut {
  float* out = nullptr;
  std::int64_t stride = 0;
  const float* bias = nullptr;  ///< may be null
  std::int64_t columns = 0;     ///< rows of the piece
  bool accumulate = false;
};

/// Sums of a register tile that are continued from call to call. The last call writes the results.
struct LinearSums {
  float* sums = nullptr;  ///< [rows of x, rows of the panel]
  bool first = false;     ///< they start at zero
  bool last = false;      ///< they go to `out`
  /// [blocks of columns, linear_panel]: the sum of a block is multiplied by these before it joins the others. Null =
  /// it joins as it is.
  const float* scales = nullptr;
  LinearOut out = {};
};

/// Rows that are prefetched in the course of a kernel, so that memory is read at an even rate.
struct NextRows {
  const void* const* rows = nullptr;
  std::int64_t count = 0;
  std::int64_t row_bytes = 0;
};

/// linear_tile, and linear_stream when it packs, prefetch once per kPrefetchStride steps; linear_register_tiled in
/// strides of its own.
constexpr std::int64_t kPrefetchStride = 8;

/// Strides of a whole block of columns that linear_register_tiled prefetches.
constexpr std::int64_t kRegisterTiledStrides = 64;

/// Lines that they prefetch while they compute: a column of 64-byte pieces down the rows of a block, then the next.
/// Rows of 64 bytes make one stretch of memory of it.
struct PrefetchBlock {
  const void* first = nullptr;
  const void* column_end = nullptr;  ///< first piece of the column + column_bytes
  std::int64_t row_bytes = 0;
  std::int64_t column_bytes = 0;      ///< rows of the block * row_bytes
  std::int64_t lines_per_stride = 0;  ///< 0 = nothing
};

struct LinearStreamArgs {
  const float* x = nullptr;           ///< [steps, rows, 4], from PackRowsArgs
  std::int64_t rows = 0;              ///< 1 .. stream_rows
  WeightPiece piece = {};             ///< at most stream_panel rows (linear_panel for few rows of x)
  std::int64_t block = kLinearBlock;  ///< columns whose sums are added at once: less where they have scales
  LinearSums sums = {};
  /// Prefetches what lies so far ahead in the same rows, and behind their end in the next.
  std::int64_t ahead_bytes = 0;
  NextRows next = {};  ///< instead: prefetches these
  /// Also packs the weights into here, as pack_weights does; null = not. Only of at most one block of columns, and with
  /// at most packing_rows rows.
  float* packed = nullptr;
  PrefetchBlock prefetch = {};  ///< instead of the others, when it packs
};

/// One block of columns of a panel, as it lies in memory, against more rows of x than linear_stream takes.
struct LinearRegisterTiledArgs {
  const float* x = nullptr;  ///< [steps, rows, 4], from PackRowsArgs; stays in the first-level cache
  std::int64_t rows = 0;     ///< up to register_tiled_tile; more than stream_rows, with bf16_quad 8 more than 4
  WeightPiece piece = {};    ///< at most linear_panel rows and kLinearBlock columns
  /// sums.sums is [rows rounded up to 4, linear_panel] in an order of the kernel's own.
  LinearSums sums = {};
  PrefetchBlock prefetch = {};  ///< kRegisterTiledStrides of its strides
};

/// One block of columns.
struct LinearTileArgs {
  const float* x = nullptr;  ///< [steps, rows, 4], from PackRowsArgs
  const float* w = nullptr;  ///< [steps, 4 * linear_panel], from pack_weights
  DType dtype = DType::f32;  ///< of what was packed
  std::int64_t rows = 0;     ///< 1 .. linear_rows
  std::int64_t steps = 0;
  LinearSums sums = {};
  PrefetchBlock prefetch = {};
};

/// One tile of scores becomes probabilities, row by row (online softmax, Milakov & Gimelshein 2018): scores are scaled,
/// capped, biased and masked; then m' = max(m, scores), p = exp(score - m'), l' = l * exp(m - m') + sum p, and the
/// row's sum of values is scaled by exp(m - m').
struct SoftmaxTileArgs {
  float* scores = nullptr;  ///< [rows, score_tile]: q k^T in, p out
  std::int64_t rows = 0;
  std::int64_t first_position = 0;  ///< of the tile's first column
  std::int64_t position = 0;        ///< the rows' own position, the last that they see
  std::int64_t window = 0;          ///< 0 = none
  float scale = 1.0F;
  float softcap = 0.0F;           ///< 0 = none
  const float* slopes = nullptr;  ///< [rows] or null
  /// Of int8 keys and values, [score_tile], or null: scores are multiplied by the ones, what is stored of the
  /// probabilities (but not their sum) by the others.
  const float* key_scales = nullptr;
  const float* value_scales = nullptr;
  float* highest = nullptr;  ///< [rows] m
  float* total = nullptr;    ///< [rows] l
  float* sums = nullptr;     ///< [rows, width]
  std::int64_t width = 0;    ///< a multiple of lanes
  NextRows next = {};
};

/// scores[r, place] = the product of query r and the key of each place of a tile, in the chains of linear.
struct ScoresStreamArgs {
  const float* queries = nullptr;     ///< [steps, rows, 4], from PackRowsArgs
  std::int64_t rows = 0;              ///< 1 .. stream_rows
  const void* const* keys = nullptr;  ///< [score_tile] rows of dtype
  DType dtype = DType::f32;
  std::int64_t head_dim = 0;
  std::int64_t first = 0;  ///< places [first, end), at least one, are wanted; others may be computed as well
  std::int64_t end = 0;
  float* scores = nullptr;  ///< [rows, score_tile]
  NextRows next = {};
};

/// sums[r, 0 .. columns) += p[r, j] * value[j, :] for j = 0 .. count - 1 in order: the chains of gemm_tile, with values
/// read once, straight from memory. bfloat16 values are taken in pairs where bf16_quad is 8, with p rounded likewise.
struct ValuesStreamArgs {
  const void* const* values = nullptr;  ///< [count] rows of dtype
  DType dtype = DType::f32;
  std::int64_t count = 0;    ///< at most score_tile; even, where values are taken in pairs
  const float* p = nullptr;  ///< [rows, p_pitch]
  std::int64_t p_pitch = 0;
  std::int64_t rows = 0;  ///< 1 .. stream_rows
  float* sums = nullptr;  ///< [rows, width]
  std::int64_t width = 0;
  std::int64_t columns = 0;  ///< a multiple of lanes
  NextRows next = {};
};

/// Softmax sums over one range of positions: the highest score, the sum of weights, and the weighted sum of values.
struct AttentionSums {
  float* highest = nullptr;  ///< -inf when nothing was seen
  float* total = nullptr;
  float* sums = nullptr;  ///< [width]
};

struct CpuKernels {
  CpuIsa isa = CpuIsa::scalar;
  int lanes = 0;       ///< floats in a vector
  int panel = 0;       ///< columns of a register tile: 2 * lanes
  int max_rows = 0;    ///< most rows of a register tile; <= lanes
  int score_tile = 0;  ///< positions of a tile of scores: a multiple of panel and of linear_panel

  int linear_panel = 0;  ///< rows of w in a register tile of linear_tile
  int linear_rows = 0;   ///< most rows of x in it
  int stream_panel = 0;  ///< the same of linear_stream
  int stream_rows = 0;
  int wide_stream_rows = 0;  ///< up to so many rows of x, linear_stream takes linear_panel rows of w instead
  int packing_rows = 0;      ///< up to so many, linear_stream packs in passing; 0 = it does not pay
  int register_tiled_tile =
      0;  ///< most rows of x that linear_register_tiled takes at once: better up to there; 0 = never
  int register_tiled_rows = 0;  ///< up to so many rows, it is better with bfloat16 weights, in several tiles
  int bf16_quad = 0;            ///< elements of a quad of bfloat16: 4, widened to float32, or 8, as they are

  void (*pack_rows)(const PackRowsArgs& args);
  /// Packs one block of columns; dst: [steps, 4 * linear_panel].
  void (*pack_weights)(const WeightPiece& piece, float* dst);
  void (*linear_tile)(const LinearTileArgs& args);
  void (*linear_stream)(const LinearStreamArgs& args);
  void (*linear_register_tiled)(const LinearRegisterTiledArgs& args);

  void (*pack)(const PackArgs& args);
  void (*gemm_tile)(const GemmTileArgs& args);
  void (*scores_stream)(const ScoresStreamArgs& args);
  void (*softmax_tile)(const SoftmaxTileArgs& args);
  void (*values_stream)(const ValuesStreamArgs& args);
  /// Adds the sums of a later range of positions to those of the earlier ones. width is a multiple of lanes.
  void (*merge_sums)(const AttentionSums& into, const AttentionSums& later, std::int64_t width);

  /// dst[i] = src[i] as float32, i < count; and back, rounded to nearest even. int8: integers without a scale; fp8_e4m3
  /// is widened in units of kFp8Unit.
  void (*widen)(const void* src, DType dtype, std::int64_t count, float* dst);
  void (*narrow)(const float* src, std::int64_t count, DType dtype, void* dst);
  /// Where bf16_quad is 8: dst[i] = first[i], second[i], which are bfloat16.
  void (*pair_bf16)(const void* first, const void* second, std::int64_t count, float* dst);
  /// The integers of an int8 key or value; returns their scale (KvCacheView).
  float (*quantize)(const float* src, std::int64_t count, std::int8_t* dst);

  /// out[i] = x[i] * factor.
  void (*scale)(const float* x, float factor, std::int64_t count, float* out);
  /// One row of RmsNormParams; residual may be null.
  void (*rms_norm)(const float* x, float* residual, const float* weight, float eps, std::int64_t hidden, float* out);
  /// One head of RotaryParams.
  void (*rotary)(float* head, const float* cosines, const float* sines, std::int64_t half, bool interleaved);
  /// out[i] = act(x[i]) * up[i]; up may be null.
  void (*activation)(Activation activation, const float* x, const float* up, std::int64_t count, float* out);

  QuantizedKernels quantized = {};
};

/// The table of an instruction set that this build contains.
const CpuKernels& kernels_for(CpuIsa isa);

/// The tables, one per translation unit of kernels/cpu/simd.
const CpuKernels& portable_kernels();
#if defined(PAGODA_X86_KERNELS)
const CpuKernels& avx2_kernels();
const CpuKernels& avx_vnni_kernels();
const CpuKernels& avx512_kernels();
const CpuKernels& avx512_vnni_kernels();
const CpuKernels& avx512_bf16_kernels();
#elif defined(PAGODA_ARM_KERNELS)
const CpuKernels& neon_kernels();
const CpuKernels& neon_dotprod_kernels();
#endif

}  // namespace pagoda::kernels

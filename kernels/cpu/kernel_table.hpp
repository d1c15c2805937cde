#pragma once

/// The inner loops of the CPU ops, one table per instruction set. Drivers (linear.cpp, attention.cpp, ...) are ordinary
/// code that splits an op into tasks and cache blocks; code that profits from vectors is called through this table.
///
/// Matrix products are batch-invariant, because each result is a sum of chains of multiply-adds in ascending order. A
/// chain has the same bits however rows, columns and ranges of k are split between tiles, calls and threads.

#include <cstdint>

#include "kernels/cpu/matrix_kernels.hpp"
#include "kernels/cpu/next_rows.hpp"
#include "kernels/cpu/quantized_kernels.hpp"
#include "kernels/device.hpp"
#include "kernels/dtype.hpp"
#include "kernels/ops.hpp"

namespace pagoda::kernels {

/// Unit of widened fp8_e4m3 values: the kernels return value / kFp8Unit, which saves a multiplication per value. Code
/// that uses sums of them multiplies by kFp8Unit, which is exact.
constexpr float kFp8Unit = 256.0F;

/// dst[k, r] = rows[r][k] for r in [0, lanes) and k in [0, count): transposes `lanes` rows.
struct PackArgs {
  const float* const* rows = nullptr;  ///< `lanes` pointers; the pointer of a missing row repeats that of another row
  std::int64_t count = 0;              ///< a multiple of lanes; if `paired`, of 2 * lanes
  /// Whether dst[k, r] is the pair rows[r][2k], rows[r][2k + 1], each rounded to bfloat16. Only if bf16_quad is 8.
  bool paired = false;
  float* dst = nullptr;  ///< [count, lanes]; if `paired`, [count / 2, lanes]
};

/// c[r, 0..panel) (+)= sum over i < k of x[i * x_pitch + r] * w[i, 0..panel).
struct GemmTileArgs {
  const float* x = nullptr;
  std::int64_t x_pitch = 0;
  bool paired = false;  ///< whether elements of x and w are pairs of bfloat16; the products of both halves are added
  const float* w = nullptr;  ///< [k, w_pitch]
  std::int64_t w_pitch = 0;
  float* c = nullptr;  ///< [rows, c_pitch]
  std::int64_t c_pitch = 0;
  std::int64_t rows = 0;  ///< 1 .. max_rows
  std::int64_t k = 0;
  bool starts_at_zero = false;  ///< whether c starts at zero; otherwise at its old value
};

// Linear: out[m, n] = sum of x[m, k] * w[n, k]. Columns are split into blocks of kLinearBlock, whose sums are added in
// ascending order. The sum of a block consists of four chains, one for each position of k within a quad of elements;
// the chains are added at the end of the block. A vector of weights holds one quad of each of lanes / 4 rows and is
// multiplied by a broadcast quad of x, so that weights need little rearranging. A quad holds consecutive elements. In
// bfloat16 it holds every second element: of each eight, the first quad has the even elements, the second the odd ones.
// If the machine multiplies pairs of bfloat16 (bf16_quad is 8), x is rounded to bfloat16, and a quad holds four pairs.
//
// Three kernels compute the same sums. linear_stream and linear_register_tiled read weights as they are stored, for few
// rows of x and for a few more; linear_tile reads packed weights, for many rows. 8-bit floats have scales for blocks of
// columns; the blocks of sums then have kLinearBlock columns or less. linear_register_tiled does not support them.

constexpr std::int64_t kLinearBlock = 512;
/// Packed columns are padded with zeros to a multiple of this.
constexpr std::int64_t kLinearPadding = 32;

/// Packs x for a register tile: dst[step, m, 0..4) = the step-th quad of row m, 16 bytes.
struct PackRowsArgs {
  const float* x = nullptr;  ///< [rows, k], rows x_pitch apart
  std::int64_t rows = 0;
  std::int64_t k = 0;
  std::int64_t x_pitch = 0;
  bool paired = false;   ///< whether x is packed for bfloat16 weights; otherwise for weights of other types
  float* dst = nullptr;  ///< [steps, rows, 4]
};

/// Columns [first, first + count) of some rows of a weight matrix.
struct WeightPiece {
  const void* w = nullptr;  ///< column 0 of the first row
  DType dtype = DType::f32;
  std::int64_t rows = 0;       ///< at least 1; kernels with larger panels repeat the last row
  std::int64_t row_bytes = 0;  ///< bytes from one row to the next
  std::int64_t first = 0;      ///< a multiple of kLinearBlock
  std::int64_t count = 0;      ///< a multiple of kLinearBlock unless the row ends here
  /// Replaces w and row_bytes if not null: start of each row of a whole panel (a missing row repeats another one).
  const void* const* row_pointers = nullptr;
};

/// Destination of results: out[m * stride + n] = sum + bias[n], or += if `accumulate`.
struct LinearOut {
  float* out = nullptr;
  std::int64_t stride = 0;
  const float* bias = nullptr;  ///< may be null
  std::int64_t columns = 0;     ///< number of rows of the weight piece
  bool accumulate = false;
};

/// Sums of a register tile, which successive calls continue. The last call writes the results.
struct LinearSums {
  float* sums = nullptr;        ///< [rows of x, rows of the panel]
  bool starts_at_zero = false;  ///< whether the sums start at zero; otherwise at their old values
  bool last = false;            ///< whether the results are written to `out`
  /// [blocks of columns, linear_panel]: factors of the sum of each block, applied before it is added to the others.
  /// Null = no factors.
  const float* scales = nullptr;
  LinearOut out = {};
};

/// Steps per prefetch stride of linear_tile, and of linear_stream when it packs. linear_register_tiled has other
/// strides.
constexpr std::int64_t kPrefetchStride = 8;

/// Number of prefetch strides in which linear_register_tiled computes a whole block of columns.
constexpr std::int64_t kRegisterTiledStrides = 64;

/// Cache lines that the linear kernels prefetch while they compute: a column of 64-byte pieces down the rows of a
/// block, then the next column. With rows of 64 bytes, the block is one contiguous range of memory.
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
  std::int64_t block = kLinearBlock;  ///< columns of a block of sums; less if the weights have scales
  LinearSums sums = {};
  /// Distance of prefetches ahead of the reads; 0 = no prefetches. Past the end of the current rows, the kernel
  /// prefetches the rows that follow them.
  std::int64_t ahead_bytes = 0;
  NextRows next = {};  ///< rows to prefetch instead of the bytes ahead
  /// Destination of packed weights, in the layout of pack_weights; null = the kernel does not pack. Packing needs at
  /// most one block of columns and at most packing_rows rows of x.
  float* packed = nullptr;
  PrefetchBlock prefetch = {};  ///< lines to prefetch instead of the above when the kernel packs
};

/// Product of one block of columns of a panel, as it is stored, with more rows of x than linear_stream takes.
struct LinearRegisterTiledArgs {
  const float* x = nullptr;  ///< [steps, rows, 4], from PackRowsArgs; stays in the first-level cache
  std::int64_t rows = 0;     ///< at most register_tiled_tile; more than stream_rows (more than 4 if bf16_quad is 8)
  WeightPiece piece = {};    ///< at most linear_panel rows and kLinearBlock columns
  /// sums.sums is [rows rounded up to 4, linear_panel] in an internal order of the kernel.
  LinearSums sums = {};
  PrefetchBlock prefetch = {};  ///< prefetched in kRegisterTiledStrides strides
};

/// Product of one block of packed columns.
struct LinearTileArgs {
  const float* x = nullptr;  ///< [steps, rows, 4], from PackRowsArgs
  const float* w = nullptr;  ///< [steps, 4 * linear_panel], from pack_weights
  DType dtype = DType::f32;  ///< type of the weights before packing
  std::int64_t rows = 0;     ///< 1 .. linear_rows
  std::int64_t steps = 0;
  LinearSums sums = {};
  PrefetchBlock prefetch = {};
};

/// Turns one tile of scores into probabilities, row by row (online softmax, Milakov & Gimelshein 2018): scores are
/// scaled, capped, biased and masked; then m' = max(m, scores), p = exp(score - m'), l' = l * exp(m - m') + sum p, and
/// the row's sum of values is scaled by exp(m - m').
struct SoftmaxTileArgs {
  float* scores = nullptr;  ///< [rows, score_tile]: q k^T in, p out
  std::int64_t rows = 0;
  std::int64_t first_position = 0;  ///< position of the tile's first column
  std::int64_t position = 0;        ///< position of the rows' queries, the last that they see
  std::int64_t first_seen = 0;      ///< the first position that the queries see
  float scale = 1.0F;
  float softcap = 0.0F;           ///< 0 = none
  const float* slopes = nullptr;  ///< [rows] or null
  /// Scales of int8 keys and values, [score_tile], or null. Scores are multiplied by key_scales; the stored
  /// probabilities, but not their sum, are multiplied by value_scales.
  const float* key_scales = nullptr;
  const float* value_scales = nullptr;
  float* highest = nullptr;  ///< [rows] m
  float* total = nullptr;    ///< [rows] l
  float* sums = nullptr;     ///< [rows, width]
  std::int64_t width = 0;    ///< a multiple of lanes
  NextRows next = {};
};

/// scores[r, i] = the product of query r and key i of a tile, with the chains of linear.
struct ScoresStreamArgs {
  const float* queries = nullptr;     ///< [steps, rows, 4], from PackRowsArgs
  std::int64_t rows = 0;              ///< 1 .. stream_rows
  const void* const* keys = nullptr;  ///< [score_tile] rows of dtype
  DType dtype = DType::f32;
  std::int64_t head_dim = 0;
  std::int64_t first = 0;  ///< keys [first, end), at least one, are needed; the kernel may compute others, too
  std::int64_t end = 0;
  float* scores = nullptr;  ///< [rows, score_tile]
  NextRows next = {};
};

/// sums[r, 0 .. columns) += p[r, j] * value[j, :] for j = 0 .. count - 1 in order: the chains of gemm_tile, with values
/// read once, as they are stored. If bf16_quad is 8, bfloat16 values are multiplied in pairs, and p is rounded to
/// bfloat16.
struct ValuesStreamArgs {
  const void* const* values = nullptr;  ///< [count] rows of dtype
  DType dtype = DType::f32;
  std::int64_t count = 0;    ///< at most score_tile; even if values are multiplied in pairs
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
  float* highest = nullptr;  ///< -inf if the range has no visible position
  float* total = nullptr;
  float* sums = nullptr;  ///< [width]
};

/// shrunk[m * shrunk_stride + r] = scale * sum over k < in of x[m * x_stride + k] * a[r, k]. Each sum is one chain of
/// multiply-adds per lane.
struct LoraShrinkArgs {
  const float* x = nullptr;  ///< [rows, in], rows x_stride apart
  std::int64_t x_stride = 0;
  std::int64_t rows = 0;
  const void* a = nullptr;  ///< [ranks, in]
  DType dtype = DType::f32;
  std::int64_t in = 0;
  std::int64_t ranks = 0;
  float scale = 1.0F;
  float* shrunk = nullptr;
  std::int64_t shrunk_stride = 0;
};

/// out[m * out_stride + n] += factors[n] * sum over r < rank of shrunk[m, r] * B[n, r] + (factors[n] - 1) * base + bias
/// for n < columns, as in LoraItem. Each sum is one chain of multiply-adds in ascending order.
struct LoraExpandArgs {
  const float* shrunk = nullptr;  ///< [rows, rank]
  std::int64_t rows = 0;
  const void* b = nullptr;  ///< panels of kLoraPanel columns
  DType dtype = DType::f32;
  std::int64_t rank = 0;
  std::int64_t columns = 0;
  float* out = nullptr;  ///< [rows, columns], rows out_stride apart
  std::int64_t out_stride = 0;
  const float* factors = nullptr;  ///< [columns] or null
  const float* base = nullptr;     ///< [rows, columns], rows base_stride apart; null = out
  std::int64_t base_stride = 0;
  const float* bias = nullptr;  ///< [columns] or null
};

struct CpuKernels {
  CpuIsa isa = CpuIsa::scalar;
  int lanes = 0;       ///< floats in a vector
  int panel = 0;       ///< columns of a register tile: 2 * lanes
  int max_rows = 0;    ///< maximum rows of a register tile; <= lanes
  int score_tile = 0;  ///< positions of a tile of scores: a multiple of panel and of linear_panel

  int linear_panel = 0;      ///< rows of w in a register tile of linear_tile
  int linear_rows = 0;       ///< maximum rows of x in a register tile of linear_tile
  int stream_panel = 0;      ///< rows of w in a register tile of linear_stream
  int stream_rows = 0;       ///< maximum rows of x in a register tile of linear_stream
  int wide_stream_rows = 0;  ///< maximum rows of x for which linear_stream takes linear_panel rows of w
  int packing_rows = 0;      ///< maximum rows of x for which linear_stream also packs the weights; 0 = never
  /// Maximum rows of x per call of linear_register_tiled, which is the fastest kernel up to this number; 0 = not used.
  int register_tiled_tile = 0;
  /// Maximum rows of x for which several tiles of linear_register_tiled are the fastest way with bfloat16 weights.
  int register_tiled_rows = 0;
  int bf16_quad = 0;  ///< bfloat16 elements of a quad: 4 (widened to float32) or 8 (multiplied as bfloat16 pairs)

  void (*pack_rows)(const PackRowsArgs& args);
  /// Packs one block of columns; dst: [steps, 4 * linear_panel].
  void (*pack_weights)(const WeightPiece& piece, float* dst);
  void (*linear_tile)(const LinearTileArgs& args);
  void (*linear_stream)(const LinearStreamArgs& args);
  void (*linear_register_tiled)(const LinearRegisterTiledArgs& args);

  void (*lora_shrink)(const LoraShrinkArgs& args);
  void (*lora_expand)(const LoraExpandArgs& args);

  void (*pack)(const PackArgs& args);
  void (*gemm_tile)(const GemmTileArgs& args);
  void (*scores_stream)(const ScoresStreamArgs& args);
  void (*softmax_tile)(const SoftmaxTileArgs& args);
  void (*values_stream)(const ValuesStreamArgs& args);
  /// Adds the sums of a later range of positions to the sums of the earlier positions. width is a multiple of lanes.
  void (*merge_sums)(const AttentionSums& into, const AttentionSums& later, std::int64_t width);

  /// dst[i] = src[i] as float32, i < count. int8: integers without a scale; fp8_e4m3: in units of kFp8Unit.
  void (*widen)(const void* src, DType dtype, std::int64_t count, float* dst);
  /// dst[i] = src[i] in type `dtype`, i < count, rounded to nearest even.
  void (*narrow)(const float* src, std::int64_t count, DType dtype, void* dst);
  /// Does the work of narrow for keys and values, which saturate in float16 (KvCacheView).
  void (*narrow_kv)(const float* src, std::int64_t count, DType dtype, void* dst);
  /// dst[i] = the pair first[i], second[i], which are bfloat16. Only if bf16_quad is 8.
  void (*pair_bf16)(const void* first, const void* second, std::int64_t count, float* dst);
  /// Writes the integers of an int8 key or value; returns their scale (KvCacheView).
  float (*quantize)(const float* src, std::int64_t count, std::int8_t* dst);

  /// out[i] = x[i] * factor.
  void (*scale)(const float* x, float factor, std::int64_t count, float* out);
  /// Computes one row of RmsNormParams; residual may be null.
  void (*rms_norm)(const float* x, float* residual, const float* weight, float eps, std::int64_t hidden, float* out);
  /// Computes one head of RotaryParams.
  void (*rotary)(float* head, const float* cosines, const float* sines, std::int64_t half, bool interleaved);
  /// out[i] = act(x[i]) * up[i]; up may be null.
  void (*activation)(Activation activation, const float* x, const float* up, std::int64_t count, float* out);
  /// x[i] = cap * tanh(x[i] * factor / cap).
  void (*softcap)(float* x, float factor, float cap, std::int64_t count);

  QuantizedKernels quantized = {};
  MatrixKernels matrix = {};
};

/// Returns whether a matrix unit computes linear layers with bfloat16 weights, many rows with quantised weights, and
/// attention with a bfloat16 cache.
inline bool has_matrix_unit(const CpuKernels& kernels) {
  return kernels.matrix.stream != nullptr;
}

/// Returns the table of an instruction set that this build contains.
const CpuKernels& kernels_for(CpuIsa isa);

/// Return the tables, one per translation unit of kernels/cpu/simd.
const CpuKernels& portable_kernels();
#if defined(PAGODA_X86_KERNELS)
const CpuKernels& avx2_kernels();
const CpuKernels& avx_vnni_kernels();
const CpuKernels& avx512_kernels();
const CpuKernels& avx512_vnni_kernels();
const CpuKernels& avx512_bf16_kernels();
const CpuKernels& avx512_amx_kernels();
/// Returns whether the matrix unit gives the bits of the emulated one. Only on a processor that has a matrix unit, in a
/// process that may use it.
bool amx_is_as_emulated();
#elif defined(PAGODA_ARM_KERNELS)
const CpuKernels& neon_kernels();
const CpuKernels& neon_dotprod_kernels();
#endif

}  // namespace pagoda::kernels

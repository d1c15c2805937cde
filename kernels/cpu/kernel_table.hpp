#pragma once

/// The inner loops of the CPU ops, one table per instruction set. Drivers (linear.cpp, attention.cpp, ...) are ordinary
/// code that splits an op into tasks and cache blocks; everything that profits from vectors goes through this table.
///
/// The heart is one register tile: c[rows, panel] += x[rows, k] * w[k, panel], with `rows` broadcast values of x
/// against two vectors of w. A panel is two vectors wide. Each element of c is one chain of multiply-adds in ascending
/// k, so it has the same bits however rows, panels and ranges of k are split: this is what makes linear and attention
/// batch-invariant.

#include <cstdint>

#include "kernels/device.hpp"
#include "kernels/dtype.hpp"
#include "kernels/ops.hpp"

namespace pagoda::kernels {

/// dst[k, r] = rows[r][first + k] as float32, for r in [0, lanes) and k in [0, count): widens and transposes `lanes`
/// rows.
struct PackArgs {
  const void* const* rows = nullptr;  ///< lanes pointers; a row that does not exist repeats another one
  DType dtype = DType::f32;
  std::int64_t first = 0;
  std::int64_t count = 0;
  float* dst = nullptr;    ///< [count, pitch], aligned to a vector
  std::int64_t pitch = 0;  ///< a multiple of lanes
};

/// gemm_tile prefetches once per kPrefetchStride steps of k.
constexpr std::int64_t kPrefetchStride = 8;

/// Lines that gemm_tile prefetches while it computes: a column of 64-byte pieces down the rows of a block, then the
/// next.
struct PrefetchBlock {
  const void* first = nullptr;
  const void* column_end = nullptr;  ///< first piece of the column + column_bytes
  std::int64_t row_bytes = 0;
  std::int64_t column_bytes = 0;      ///< rows of the block * row_bytes
  std::int64_t lines_per_stride = 0;  ///< 0 = nothing
};

/// c[r, 0..panel) (+)= sum over i < k of x[i * x_pitch + r] * w[i, 0..panel).
struct GemmTileArgs {
  const float* x = nullptr;
  std::int64_t x_pitch = 0;
  const float* w = nullptr;  ///< [k, w_pitch]
  std::int64_t w_pitch = 0;
  float* c = nullptr;  ///< [rows, c_pitch]
  std::int64_t c_pitch = 0;
  std::int64_t rows = 0;  ///< 1 .. max_rows
  std::int64_t k = 0;
  bool first = false;  ///< c starts at zero instead of its old value
  PrefetchBlock prefetch = {};
};

/// How far ahead of its reads gemv prefetches within a row.
constexpr std::int64_t kGemvPrefetchBytes = 1024;

/// c[m, 0..lanes) = x[m, :] * w[0..lanes, :]^T with w read once, straight from memory. The same chains as gemm_tile.
struct GemvArgs {
  const void* w = nullptr;  ///< [rows, k] of dtype
  DType dtype = DType::f32;
  std::int64_t rows = 0;  ///< 1 .. lanes; columns of c behind it are unspecified
  std::int64_t k = 0;
  const float* x = nullptr;  ///< element k of token m at k * x_pitch + m
  std::int64_t x_pitch = 0;  ///< 1 (one token) or lanes
  std::int64_t tokens = 0;   ///< 1 .. max_gemv_tokens
  float* c = nullptr;        ///< [tokens, lanes]
};

/// One tile of scores becomes probabilities, row by row (online softmax, Milakov & Gimelshein 2018): scores are scaled,
/// capped, biased and masked; then m' = max(m, scores), p = exp(score - m'), l' = l * exp(m - m') + sum p, and the
/// row's sum of values is scaled by exp(m - m').
struct SoftmaxTileArgs {
  float* scores = nullptr;  ///< [rows, panel]: q k^T in, p out
  std::int64_t rows = 0;
  std::int64_t first_position = 0;  ///< of the tile's first column
  std::int64_t position = 0;        ///< the rows' own position, the last that they see
  std::int64_t window = 0;          ///< 0 = none
  float scale = 1.0F;
  float softcap = 0.0F;           ///< 0 = none
  const float* slopes = nullptr;  ///< [rows] or null
  float* highest = nullptr;       ///< [rows] m
  float* total = nullptr;         ///< [rows] l
  float* sums = nullptr;          ///< [rows, width]
  std::int64_t width = 0;         ///< a multiple of lanes
};

/// Softmax sums over one range of positions: the highest score, the sum of weights, and the weighted sum of values.
struct AttentionSums {
  float* highest = nullptr;  ///< -inf when nothing was seen
  float* total = nullptr;
  float* sums = nullptr;  ///< [width]
};

struct CpuKernels {
  CpuIsa isa = CpuIsa::scalar;
  int lanes = 0;            ///< floats in a vector
  int panel = 0;            ///< columns of a register tile: 2 * lanes
  int max_rows = 0;         ///< most rows of a register tile; <= lanes
  int max_gemv_tokens = 0;  ///< up to here gemv is faster than packing and gemm_tile; <= max_rows

  void (*pack)(const PackArgs& args);
  void (*gemm_tile)(const GemmTileArgs& args);
  void (*gemv)(const GemvArgs& args);
  void (*softmax_tile)(const SoftmaxTileArgs& args);
  /// Adds the sums of a later range of positions to those of the earlier ones. width is a multiple of lanes.
  void (*merge_sums)(const AttentionSums& into, const AttentionSums& later, std::int64_t width);

  /// dst[i] = src[i] as float32, i < count; and back, rounded to nearest even.
  void (*widen)(const void* src, DType dtype, std::int64_t count, float* dst);
  void (*narrow)(const float* src, std::int64_t count, DType dtype, void* dst);

  /// out[i] = c[i] + bias[i] (bias may be null), or out[i] += that.
  void (*write_out)(const float* c, const float* bias, std::int64_t count, bool accumulate, float* out);
  /// out[i] = x[i] * factor.
  void (*scale)(const float* x, float factor, std::int64_t count, float* out);
  /// One row of RmsNormParams; residual may be null.
  void (*rms_norm)(const float* x, float* residual, const float* weight, float eps, std::int64_t hidden, float* out);
  /// One head of RotaryParams.
  void (*rotary)(float* head, const float* cosines, const float* sines, std::int64_t half, bool interleaved);
  /// out[i] = act(x[i]) * up[i]; up may be null.
  void (*activation)(Activation activation, const float* x, const float* up, std::int64_t count, float* out);
};

/// The table of an instruction set that this build contains.
const CpuKernels& kernels_for(CpuIsa isa);

/// The tables, one per translation unit of kernels/cpu/simd.
const CpuKernels& portable_kernels();
#if defined(PAGODA_X86_KERNELS)
const CpuKernels& avx2_kernels();
const CpuKernels& avx512_kernels();
#endif

}  // namespace pagoda::kernels

#pragma once

#include <cstdint>

#include <cuda_runtime_api.h>

#include "kernels/ops.hpp"

namespace pagoda::kernels::cuda {

/// Up to this many rows of x, streaming the weights once is faster than a matrix multiplication on tensor cores
/// (docs/benchmarks/gpu.md).
constexpr std::int64_t kMaxSkinnyRows = 2;

/// Place of the outputs of one part in the grid of the kernel.
struct SkinnyPart {
  const void* weight = nullptr;
  const void* bias = nullptr;
  std::int32_t rows = 0;
  std::int32_t first_block = 0;
  std::int32_t first_column = 0;  ///< first column of out
  const float* scales = nullptr;  ///< scales of 8-bit floats, in the layout of WeightMatrix
  std::int32_t scale_rows = 1;
};

/// Arguments of the kernel of skinny_linear().
struct SkinnyArgs {
  static constexpr int kMaxParts = 4;

  const void* x = nullptr;  ///< elements of float32, or of the weights' type if narrow_x
  bool narrow_x = false;
  float* out = nullptr;
  std::int64_t out_stride = 0;
  std::int32_t in = 0;
  std::int32_t num_tokens = 0;
  std::int32_t num_parts = 0;
  std::int32_t num_blocks = 0;  ///< thread blocks of all parts
  DType bias_dtype = DType::f32;
  bool accumulate = false;
  std::int32_t scale_shift = 31;   ///< column k uses scale k >> scale_shift of its row
  std::int32_t scales_of_row = 1;  ///< number of scales of a row
  SkinnyPart parts[kMaxParts];
};

/// Outputs of a thread block: the rows of the weights that its warps stream side by side.
constexpr std::int32_t kSkinnyOutputs = 4;

/// Assigns the parts of `p` to thread blocks of the grid: a thread block never crosses a part.
SkinnyArgs skinny_args(const LinearParams& p);

/// Returns whether every row of x and of the weights can be read 16 bytes at a time.
bool reads_in_vectors(const LinearParams& p);

/// Computes LinearParams by float32 multiply-adds (8-bit floats are first converted to float32 and multiplied with
/// their scales), for all parts and any number of rows in one launch. 8 rows of x (or 4, 2, 1 if there are fewer) share
/// one pass over the weights. Columns are assigned to lanes in one fixed way, so an output has the same bits for any
/// number of rows.
Status skinny_linear(cudaStream_t stream, const LinearParams& p);

}  // namespace pagoda::kernels::cuda

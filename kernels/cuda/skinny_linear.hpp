#pragma once

#include <cstdint>

#include <cuda_runtime_api.h>

#include "kernels/ops.hpp"

namespace pagoda::kernels::cuda {

/// Up to this many rows of x, streaming the weights once beats a matrix multiplication on tensor cores
/// (docs/benchmarks/gpu.md).
constexpr std::int64_t kMaxSkinnyRows = 2;

/// How the outputs of one part lie in the grid of the kernel.
struct SkinnyPart {
  const void* weight = nullptr;
  const void* bias = nullptr;
  std::int32_t rows = 0;
  std::int32_t first_block = 0;
  std::int32_t first_column = 0;  ///< of out
  const float* scales = nullptr;  ///< as WeightMatrix has them, of 8-bit floats
  std::int32_t scale_rows = 1;
};

/// What the kernel of skinny_linear() is given.
struct SkinnyArgs {
  static constexpr int kMaxParts = 4;

  const void* x = nullptr;  ///< float32, or narrow: of the type of the weights
  bool narrow_x = false;
  float* out = nullptr;
  std::int64_t out_stride = 0;
  std::int32_t in = 0;
  std::int32_t num_tokens = 0;
  std::int32_t num_parts = 0;
  std::int32_t num_blocks = 0;  ///< of all parts
  DType bias_dtype = DType::f32;
  bool accumulate = false;
  std::int32_t scale_shift = 31;   ///< column k has scale k >> scale_shift of its row ...
  std::int32_t scales_of_row = 1;  ///< ... among these
  SkinnyPart parts[kMaxParts];
};

/// Outputs of a block: the rows of the weights that its warps stream side by side.
constexpr std::int32_t kSkinnyOutputs = 4;

/// Lays the parts of `p` side by side in the grid: a block never crosses a part.
SkinnyArgs skinny_args(const LinearParams& p);

/// True when every row of x and of the weights can be read 16 bytes at a time.
bool reads_in_vectors(const LinearParams& p);

/// LinearParams by float32 multiply-adds (8-bit floats times their scales become float32 before), all parts and any
/// number of rows in one launch: 8 rows of x (or 4, 2, 1, when there are fewer) go over the weights together. Columns
/// are dealt to lanes in one fixed way, so an output has the same bits whatever the number of rows.
Status skinny_linear(cudaStream_t stream, const LinearParams& p);

}  // namespace pagoda::kernels::cuda

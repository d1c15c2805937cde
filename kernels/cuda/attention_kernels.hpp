#pragma once

/// Declares the kernel launches that cuda_paged_attention uses, one per kernel family.

#include <cstdint>

#include <cuda_runtime_api.h>

#include "kernels/dtype.hpp"
#include "kernels/result.hpp"

namespace pagoda::kernels::cuda {

struct AttentionArgs;

/// Grid and tile shape of one launch. A launch covers either the split or the whole sequences of a batch.
struct AttentionLaunch {
  std::int64_t grid_x = 0;
  std::int64_t grid_y = 0;
  std::int64_t grid_z = 1;
  std::int32_t rows = 0;  ///< packed rows of a tile; for narrow tiles, the largest number that occurs
  bool split = false;
  std::int32_t padded_dim = 0;  ///< padded head_dim of the tensor core kernels
};

Status launch_attention_tiles_f16(cudaStream_t stream, const AttentionArgs& args, const AttentionLaunch& how);
Status launch_attention_tiles_bf16(cudaStream_t stream, const AttentionArgs& args, const AttentionLaunch& how);
Status launch_attention_tiles_fp8(cudaStream_t stream, const AttentionArgs& args, const AttentionLaunch& how);
Status launch_attention_tiles_int8(cudaStream_t stream, const AttentionArgs& args, const AttentionLaunch& how);
Status launch_attention_plain(cudaStream_t stream, const AttentionArgs& args, const AttentionLaunch& how, DType dtype);

}  // namespace pagoda::kernels::cuda

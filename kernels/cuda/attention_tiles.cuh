#pragma once

/// Launches of the tensor core kernels; each type of cache has a .cu file that instantiates them.

#include "kernels/cuda/attention_kernels.hpp"
#include "kernels/cuda/attention_narrow.cuh"
#include "kernels/cuda/attention_wide.cuh"
#include "kernels/cuda/launch.hpp"

namespace pagoda::kernels::cuda {

template <class Stored, int kDim, bool plain>
Status launch_attention_tiles(cudaStream_t stream, const AttentionArgs& args, const AttentionLaunch& how) {
  const dim3 grid(static_cast<unsigned>(how.grid_x), static_cast<unsigned>(how.grid_y),
                  static_cast<unsigned>(how.grid_z));
  using Narrow = NarrowShape<Stored, kDim, plain>;
  using Wide = WideShape<Stored, kDim, plain>;
  if (how.split) {
    return launch(Start::early, "paged_attention (narrow tiles)", &attention_narrow<Narrow>, grid,
                  dim3(Narrow::kThreads), narrow_shared_bytes(kDim, sizeof(Stored), how.rows), stream, args);
  }
  return launch(Start::early, "paged_attention (wide tiles)", &attention_wide<Wide>, grid, dim3(Wide::kThreads),
                Wide::kSharedBytes, stream, args);
}

template <class Stored, int kDim>
Status launch_attention_tiles(cudaStream_t stream, const AttentionArgs& args, const AttentionLaunch& how) {
  return args.plain_scores ? launch_attention_tiles<Stored, kDim, true>(stream, args, how)
                           : launch_attention_tiles<Stored, kDim, false>(stream, args, how);
}

template <class Stored>
Status launch_attention_tiles(cudaStream_t stream, const AttentionArgs& args, const AttentionLaunch& how) {
  switch (how.padded_dim) {
    case 64:
      return launch_attention_tiles<Stored, 64>(stream, args, how);
    case 128:
      return launch_attention_tiles<Stored, 128>(stream, args, how);
    default:
      return launch_attention_tiles<Stored, 256>(stream, args, how);
  }
}

}  // namespace pagoda::kernels::cuda

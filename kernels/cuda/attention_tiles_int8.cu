#include "kernels/cuda/attention_tiles.cuh"

namespace pagoda::kernels::cuda {

Status launch_attention_tiles_int8(cudaStream_t stream, const AttentionArgs& args, const AttentionLaunch& how) {
  return launch_attention_tiles<std::int8_t>(stream, args, how);
}

}  // namespace pagoda::kernels::cuda

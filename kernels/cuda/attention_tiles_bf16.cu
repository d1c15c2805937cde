#include "kernels/cuda/attention_tiles.cuh"

namespace pagoda::kernels::cuda {

Status launch_attention_tiles_bf16(cudaStream_t stream, const AttentionArgs& args, const AttentionLaunch& how) {
  return launch_attention_tiles<__nv_bfloat16>(stream, args, how);
}

}  // namespace pagoda::kernels::cuda

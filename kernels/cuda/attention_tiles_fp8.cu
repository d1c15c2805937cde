#include "kernels/cuda/attention_tiles.cuh"

namespace pagoda::kernels::cuda {

Status launch_attention_tiles_fp8(cudaStream_t stream, const AttentionArgs& args, const AttentionLaunch& how) {
  return launch_attention_tiles<__nv_fp8_e4m3>(stream, args, how);
}

}  // namespace pagoda::kernels::cuda

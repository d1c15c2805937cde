#include "kernels/cuda/device_functions.cuh"
#include "kernels/cuda/launch.hpp"
#include "kernels/cuda/row_ops.hpp"

namespace pagoda::kernels::cuda {
namespace {

constexpr int kThreads = 256;

/// One block per token; a thread turns one pair of one head after the other, the heads of the query first.
template <bool interleaved>
__global__ void rotary_kernel(RotaryParams p) {
  const std::int64_t token = blockIdx.x;
  const int half = static_cast<int>(p.rotary_dim) / 2;
  const int head_dim = static_cast<int>(p.head_dim);
  const int query_heads = static_cast<int>(p.num_heads);
  const int pairs = (query_heads + static_cast<int>(p.num_kv_heads)) * half;
  const float* cosines = p.cos_sin + p.positions[token] * p.rotary_dim;
  const float* sines = cosines + half;
  float* query = p.query + token * p.query_stride;
  float* key = p.key + token * p.key_stride;
  for (int i = static_cast<int>(threadIdx.x); i < pairs; i += kThreads) {
    const int head = i / half;
    const int pair = i % half;
    float* row = head < query_heads ? query + head * head_dim : key + (head - query_heads) * head_dim;
    float* first = row + (interleaved ? 2 * pair : pair);
    float* second = first + (interleaved ? 1 : half);
    const float a = *first;
    const float b = *second;
    *first = a * cosines[pair] - b * sines[pair];
    *second = b * cosines[pair] + a * sines[pair];
  }
}

}  // namespace

Status cuda_rotary(cudaStream_t stream, const RotaryParams& p) {
  const dim3 grid(static_cast<unsigned>(p.num_tokens));
  return launch("rotary", p.interleaved ? rotary_kernel<true> : rotary_kernel<false>, grid, dim3(kThreads), 0, stream,
                p);
}

}  // namespace pagoda::kernels::cuda

#include "kernels/cuda/launch.hpp"
#include "kernels/cuda/quads.cuh"
#include "kernels/cuda/row_ops.hpp"

namespace pagoda::kernels::cuda {
namespace {

constexpr int kThreads = 128;

/// Rotates the pairs (first[i], second[i]) of a quad by their angles.
template <bool packed>
__device__ __forceinline__ void turn(float* first, float* second, int quad, int half, float4 cosines, float4 sines) {
  const float4 a = load_quad<packed>(first, quad, half);
  const float4 b = load_quad<packed>(second, quad, half);
  store_quad<packed>(first, quad, half,
                     make_float4(a.x * cosines.x - b.x * sines.x, a.y * cosines.y - b.y * sines.y,
                                 a.z * cosines.z - b.z * sines.z, a.w * cosines.w - b.w * sines.w));
  store_quad<packed>(second, quad, half,
                     make_float4(b.x * cosines.x + a.x * sines.x, b.y * cosines.y + a.y * sines.y,
                                 b.z * cosines.z + a.z * sines.z, b.w * cosines.w + a.w * sines.w));
}

/// Applies "rotate half". Block (token, piece): a thread rotates four pairs of one head; the heads of the query come
/// first.
template <bool packed>
__global__ void __launch_bounds__(kThreads) rotary_kernel(RotaryParams p) {
  wait_for_stream();
  const std::int64_t token = blockIdx.x;
  const int half = static_cast<int>(p.rotary_dim) / 2;
  const int quads = ceil_divide(half, kQuad);
  const int head_dim = static_cast<int>(p.head_dim);
  const int query_heads = static_cast<int>(p.num_heads);
  const int count = (query_heads + static_cast<int>(p.num_kv_heads)) * quads;
  const float* cosines = p.cos_sin + p.positions[token] * p.rotary_dim;
  float* query = p.query + token * p.query_stride;
  float* key = p.key + token * p.key_stride;
  for (int i = static_cast<int>(blockIdx.y * kThreads + threadIdx.x); i < count;
       i += static_cast<int>(gridDim.y * kThreads)) {
    const int head = i / quads;
    const int quad = i % quads;
    float* row = head < query_heads ? query + head * head_dim : key + (head - query_heads) * head_dim;
    turn<packed>(row, row + half, quad, half, load_quad<packed>(cosines, quad, half),
                 load_quad<packed>(cosines + half, quad, half));
  }
}

/// Rotates pairs of neighbouring elements. Block (token, piece): a thread rotates one pair.
__global__ void __launch_bounds__(kThreads) interleaved_rotary_kernel(RotaryParams p) {
  wait_for_stream();
  const std::int64_t token = blockIdx.x;
  const int half = static_cast<int>(p.rotary_dim) / 2;
  const int head_dim = static_cast<int>(p.head_dim);
  const int query_heads = static_cast<int>(p.num_heads);
  const int count = (query_heads + static_cast<int>(p.num_kv_heads)) * half;
  const float* cosines = p.cos_sin + p.positions[token] * p.rotary_dim;
  float* query = p.query + token * p.query_stride;
  float* key = p.key + token * p.key_stride;
  for (int i = static_cast<int>(blockIdx.y * kThreads + threadIdx.x); i < count;
       i += static_cast<int>(gridDim.y * kThreads)) {
    const int head = i / half;
    const int pair = i % half;
    float* at = (head < query_heads ? query + head * head_dim : key + (head - query_heads) * head_dim) + 2 * pair;
    const float a = at[0];
    const float b = at[1];
    at[0] = a * cosines[pair] - b * cosines[half + pair];
    at[1] = b * cosines[pair] + a * cosines[half + pair];
  }
}

}  // namespace

Status cuda_rotary(cudaStream_t stream, const RotaryParams& p) {
  const std::int64_t pairs = (p.num_heads + p.num_kv_heads) * p.rotary_dim / 2;
  const dim3 grid = row_grid(p.num_tokens, p.interleaved ? pairs * kQuad : pairs, kThreads);
  if (p.interleaved) {
    return launch(Start::early, "rotary", interleaved_rotary_kernel, grid, dim3(kThreads), 0, stream, p);
  }
  const bool may = may_pack(p.rotary_dim / 2, p.query, p.key, p.cos_sin) && p.head_dim % kQuad == 0 &&
                   p.query_stride % kQuad == 0 && p.key_stride % kQuad == 0;
  return launch(Start::early, "rotary", may ? rotary_kernel<true> : rotary_kernel<false>, grid, dim3(kThreads), 0,
                stream, p);
}

}  // namespace pagoda::kernels::cuda

#include "kernels/cuda/launch.hpp"
#include "kernels/cuda/quads.cuh"
#include "kernels/cuda/row_ops.hpp"

namespace pagoda::kernels::cuda {
namespace {

constexpr int kThreads = 128;

/// One block row per token and piece of the hidden size.
template <bool packed, class T>
__global__ void embedding_kernel(const std::int32_t* token_ids, const T* table, std::int64_t vocab, std::int64_t hidden,
                                 bool accumulate, float* out) {
  wait_for_stream();
  const std::int64_t token = token_ids[blockIdx.x];
  const bool known = token >= 0 && token < vocab;
  const T* from = table + (known ? token : 0) * hidden;
  float* to = out + static_cast<std::int64_t>(blockIdx.x) * hidden;
  const std::int64_t quads = ceil_divide<std::int64_t>(hidden, kQuad);
  for (std::int64_t q = blockIdx.y * kThreads + threadIdx.x; q < quads; q += gridDim.y * kThreads) {
    float4 value = load_quad<packed>(from, q, hidden);
    if (!known) value = map_quad(value, [](float) { return __int_as_float(0x7FFFFFFF); });
    if (accumulate) value = load_quad<packed>(to, q, hidden) + value;
    store_quad<packed>(to, q, hidden, value);
  }
}

}  // namespace

Status cuda_embedding(cudaStream_t stream, const EmbeddingParams& p) {
  const std::int64_t hidden = p.table.columns;
  return with_element(p.table.dtype, [&](auto element) {
    using T = decltype(element);
    return with_packed(may_pack(hidden, p.table.data, p.out), [&](auto packed) {
      return launch(Start::early, "embedding", embedding_kernel<packed.value, T>,
                    row_grid(p.num_tokens, hidden, kThreads), dim3(kThreads), 0, stream, p.token_ids,
                    static_cast<const T*>(p.table.data), p.table.rows, hidden, p.accumulate, p.out);
    });
  });
}

}  // namespace pagoda::kernels::cuda

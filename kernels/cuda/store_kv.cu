#include <type_traits>

#include "kernels/cuda/launch.hpp"
#include "kernels/cuda/quads.cuh"
#include "kernels/cuda/row_ops.hpp"

namespace pagoda::kernels::cuda {
namespace {

constexpr int kThreads = 128;

/// Returns x as a cache of type T holds it before it is rounded (KvCacheView); NaN stays NaN.
template <class T>
__device__ __forceinline__ float in_range_of(float x) {
  if constexpr (std::is_same_v<T, __half>) {
    constexpr float kHighest = KvCacheView::kMaxF16;
    const float not_above = x > kHighest ? kHighest : x;
    return not_above < -kHighest ? -kHighest : not_above;
  }
  return x;
}

/// One thread block per token; its threads write quads of the heads of keys, then of values.
template <bool packed, class T>
__global__ void store_kv_kernel(StoreKvParams p) {
  wait_for_stream();
  const std::int64_t token = blockIdx.x;
  const std::int64_t slot = p.slot_mapping[token];
  if (slot < 0) return;
  const std::int64_t block = slot / p.cache.block_size;
  const std::int64_t offset = slot % p.cache.block_size;
  const std::int64_t head_dim = p.cache.head_dim;
  const int head_quads = static_cast<int>(ceil_divide<std::int64_t>(head_dim, kQuad));
  const int quads = static_cast<int>(p.cache.num_kv_heads) * head_quads;
  std::byte* key_block = p.cache.base + block * p.cache.block_bytes;
  std::byte* value_block =
      key_block + p.cache.num_kv_heads * p.cache.block_size * head_dim * static_cast<std::int64_t>(sizeof(T));
  for (int i = static_cast<int>(threadIdx.x); i < 2 * quads; i += kThreads) {
    const bool is_key = i < quads;
    const int head = (is_key ? i : i - quads) / head_quads;
    const int quad = i % head_quads;
    const float* from = (is_key ? p.key + token * p.key_stride : p.value + token * p.value_stride) + head * head_dim;
    T* to = reinterpret_cast<T*>(is_key ? key_block : value_block) + (head * p.cache.block_size + offset) * head_dim;
    const float4 values = load_quad<packed>(from, quad, head_dim);
    store_quad<packed>(to, quad, head_dim, map_quad(values, [](float x) { return in_range_of<T>(x); }));
  }
}

}  // namespace

Status cuda_store_kv(cudaStream_t stream, const StoreKvParams& p) {
  if (size_of(p.cache.dtype) == 1) return cuda_store_kv_bytes(stream, p);
  const bool may = may_pack(p.cache.head_dim, p.key, p.value, p.cache.base) && p.cache.block_bytes % 16 == 0 &&
                   p.cache.part_bytes() % 16 == 0 && p.key_stride % kQuad == 0 && p.value_stride % kQuad == 0;
  return with_element(p.cache.dtype, [&](auto element) {
    return with_packed(may, [&](auto packed) {
      return launch(Start::early, "store_kv", store_kv_kernel<packed.value, decltype(element)>,
                    dim3(static_cast<unsigned>(p.num_tokens)), dim3(kThreads), 0, stream, p);
    });
  });
}

}  // namespace pagoda::kernels::cuda

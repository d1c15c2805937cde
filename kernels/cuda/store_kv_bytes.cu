#include <cstdint>

#include <cuda_fp8.h>

#include "kernels/cuda/device_functions.cuh"
#include "kernels/cuda/launch.hpp"
#include "kernels/cuda/row_ops.hpp"

namespace pagoda::kernels::cuda {
namespace {

constexpr int kThreads = 128;
constexpr int kWarps = kThreads / kWarpSize;
constexpr float kMaxInt8 = 127.0F;

__device__ std::uint8_t fp8_of(float x) {
  constexpr std::uint8_t kNan = 0x7F;
  if (isnan(x)) return static_cast<std::uint8_t>(kNan | __float_as_uint(x) >> 31 << 7);
  return __nv_cvt_float_to_fp8(x, __NV_SATFINITE, __NV_E4M3);
}

// Converts row [count] to `to` [count]; called by one warp.
__device__ void store_fp8(const float* row, std::int64_t count, int lane, std::uint8_t* to) {
  for (std::int64_t i = lane; i < count; i += kWarpSize) to[i] = fp8_of(row[i]);
}

// Converts row [count] to `to` [count] and *scale (KvCacheView defines the format); called by one warp.
__device__ void store_int8(const float* row, std::int64_t count, int lane, std::int8_t* to, float* scale) {
  float highest = 0.0F;
  bool finite = true;
  for (std::int64_t i = lane; i < count; i += kWarpSize) {
    finite = finite && isfinite(row[i]);
    highest = fmaxf(highest, fabsf(row[i]));
  }
  finite = __all_sync(kFullWarp, finite ? 1 : 0) != 0;
  highest = warp_max(highest);
  const bool zero = !finite || highest < KvCacheView::kMinInt8Highest;
  const float inverse = zero ? 0.0F : __fdiv_rn(kMaxInt8, highest);
  for (std::int64_t i = lane; i < count; i += kWarpSize) {
    to[i] = zero ? std::int8_t{0} : static_cast<std::int8_t>(__float2int_rn(__fmul_rn(row[i], inverse)));
  }
  if (lane != 0) return;
  if (!finite) {
    *scale = __int_as_float(0x7FC00000);  // NaN
  } else {
    *scale = zero ? 0.0F : __fdiv_rn(highest, kMaxInt8);
  }
}

/// One thread block per token; its warps store the heads of keys, then of values. `value_bytes` and `part_bytes` are
/// the results of KvCacheView's functions.
template <bool scaled>
__global__ void __launch_bounds__(kThreads)
    store_kv_bytes_kernel(StoreKvParams p, std::int64_t value_bytes, std::int64_t part_bytes) {
  const std::int64_t token = blockIdx.x;
  const std::int64_t slot = p.slot_mapping[token];
  if (slot < 0) return;
  const std::int64_t head_dim = p.cache.head_dim;
  const auto heads = static_cast<int>(p.cache.num_kv_heads);
  const int lane = static_cast<int>(threadIdx.x) % kWarpSize;
  std::byte* block = p.cache.base + slot / p.cache.block_size * p.cache.block_bytes;
  for (int i = static_cast<int>(threadIdx.x) / kWarpSize; i < 2 * heads; i += kWarps) {
    const bool is_key = i < heads;
    const int head = is_key ? i : i - heads;
    const float* from = (is_key ? p.key + token * p.key_stride : p.value + token * p.value_stride) + head * head_dim;
    std::byte* part = is_key ? block : block + part_bytes;
    const std::int64_t row = std::int64_t{head} * p.cache.block_size + slot % p.cache.block_size;
    std::byte* to = part + row * head_dim;
    if constexpr (scaled) {
      store_int8(from, head_dim, lane, reinterpret_cast<std::int8_t*>(to),
                 reinterpret_cast<float*>(part + value_bytes) + row);
    } else {
      store_fp8(from, head_dim, lane, reinterpret_cast<std::uint8_t*>(to));
    }
  }
}

}  // namespace

Status cuda_store_kv_bytes(cudaStream_t stream, const StoreKvParams& p) {
  auto* kernel = p.cache.dtype == DType::int8 ? &store_kv_bytes_kernel<true> : &store_kv_bytes_kernel<false>;
  return launch("store_kv", kernel, dim3(static_cast<unsigned>(p.num_tokens)), dim3(kThreads), 0, stream, p,
                p.cache.value_bytes(), p.cache.part_bytes());
}

}  // namespace pagoda::kernels::cuda

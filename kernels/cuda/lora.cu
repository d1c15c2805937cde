#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "kernels/cuda/element.cuh"
#include "kernels/cuda/launch.hpp"
#include "kernels/cuda/lora.hpp"

namespace pagoda::kernels::cuda {
namespace {

constexpr int kThreads = 128;
constexpr int kWarps = kThreads / kWarpSize;
constexpr std::int64_t kMaxBlocks = 65535;

/// Some items of an op.
struct LoraLaunch {
  LoraItem items[kLoraItems];
  float* shrunk[kLoraItems];  ///< [num_rows, rank] of each item
  const void* x;              ///< [num_tokens, in]
  DType x_dtype;
  const std::int32_t* token_ids;
  std::int64_t in;
  float* out;
  std::int64_t out_stride;
};

/// Block (i, item) computes the products i * kWarps .. of an item, one by each warp: row by row, each with all rows of
/// A.
__global__ void lora_shrink_kernel(const __grid_constant__ LoraLaunch p) {
  const LoraItem& item = p.items[blockIdx.y];
  const std::int64_t products = item.num_rows * item.rank;
  const int lane = static_cast<int>(threadIdx.x) % kWarpSize;
  const int warp = static_cast<int>(threadIdx.x) / kWarpSize;
  for (std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * kWarps + warp; i < products; i += gridDim.x * kWarps) {
    const std::int64_t row = item.first_row + i / item.rank;
    const std::int64_t r = i % item.rank;
    float sum = 0.0F;
    if (p.token_ids != nullptr) {
      const std::int64_t token = p.token_ids[row];
      const bool known = token >= 0 && token < p.in;
      sum = known ? load_element(item.a, item.dtype, token * item.rank + r) : __int_as_float(0x7FFFFFFF);
    } else {
      for (std::int64_t k = lane; k < p.in; k += kWarpSize) {
        sum = fmaf(load_element(p.x, p.x_dtype, row * p.in + k), load_element(item.a, item.dtype, r * p.in + k), sum);
      }
      sum = warp_sum(sum);
    }
    if (lane == 0) p.shrunk[blockIdx.y][i] = item.scale * sum;
  }
}

/// Block (i, j, item) computes columns j * kThreads .. of row i of an item, one by each thread.
__global__ void lora_expand_kernel(const __grid_constant__ LoraLaunch p) {
  const LoraItem& item = p.items[blockIdx.z];
  for (std::int64_t n = static_cast<std::int64_t>(blockIdx.y) * kThreads + threadIdx.x; n < item.out_features;
       n += gridDim.y * kThreads) {
    for (std::int64_t t = blockIdx.x; t < item.num_rows; t += gridDim.x) {
      const float* shrunk = p.shrunk[blockIdx.z] + t * item.rank;
      const std::int64_t first = n / kLoraPanel * item.rank * kLoraPanel + n % kLoraPanel;
      float change = 0.0F;
      for (std::int64_t r = 0; r < item.rank; ++r) {
        change = fmaf(shrunk[r], load_element(item.b, item.dtype, first + r * kLoraPanel), change);
      }
      float& out = p.out[(item.first_row + t) * p.out_stride + item.first_column + n];
      if (item.factors != nullptr) {
        const float base = item.base == nullptr ? out : item.base[t * item.base_stride + n];
        change = item.factors[n] * change + (item.factors[n] - 1.0F) * base;
      }
      if (item.bias != nullptr) change += item.bias[n];
      out += change;
    }
  }
}

/// Returns the number of blocks for `count` pieces of work; a block does several if there are more than a grid has.
unsigned blocks_of(std::int64_t count) {
  return static_cast<unsigned>(std::min(count, kMaxBlocks));
}

}  // namespace

Status cuda_lora(CudaStream& stream, const LoraParams& p) {
  for (std::size_t first = 0; first < p.items.size(); first += kLoraItems) {
    const auto items = p.items.subspan(first, std::min<std::size_t>(kLoraItems, p.items.size() - first));
    LoraLaunch launched{};
    std::int64_t floats = 0;
    std::int64_t most_products = 0;
    std::int64_t most_rows = 0;
    std::int64_t most_columns = 0;
    for (const LoraItem& item : items) {
      floats += item.num_rows * item.rank;
      most_products = std::max(most_products, item.num_rows * item.rank);
      most_rows = std::max(most_rows, item.num_rows);
      most_columns = std::max(most_columns, item.out_features);
    }
    const Result<std::byte*> scratch =
        stream.scratch(static_cast<std::size_t>(std::max<std::int64_t>(1, floats)) * sizeof(float));
    if (!scratch) return fail(scratch.error());
    auto* shrunk = reinterpret_cast<float*>(*scratch);
    for (std::size_t i = 0; i < items.size(); ++i) {
      launched.items[i] = items[i];
      launched.shrunk[i] = shrunk;
      shrunk += items[i].num_rows * items[i].rank;
    }
    launched.x = p.narrow_x ? p.narrow_x.data : p.x;
    launched.x_dtype = p.narrow_x ? p.narrow_x.dtype : DType::f32;
    launched.token_ids = p.token_ids;
    launched.in = p.in;
    launched.out = p.out;
    launched.out_stride = p.out_stride;
    const auto count = static_cast<unsigned>(items.size());
    const dim3 shrink_grid(blocks_of(ceil_divide<std::int64_t>(most_products, kWarps)), count);
    if (Status status = launch("lora", lora_shrink_kernel, shrink_grid, dim3(kThreads), 0, stream.get(), launched);
        !status) {
      return status;
    }
    const dim3 expand_grid(blocks_of(most_rows), blocks_of(ceil_divide<std::int64_t>(most_columns, kThreads)), count);
    if (Status status = launch("lora", lora_expand_kernel, expand_grid, dim3(kThreads), 0, stream.get(), launched);
        !status) {
      return status;
    }
  }
  return {};
}

}  // namespace pagoda::kernels::cuda

#include "kernels/cuda/cuda_check.hpp"
#include "kernels/cuda/launch.hpp"
#include "kernels/cuda/quads.cuh"
#include "kernels/cuda/row_ops.hpp"

namespace pagoda::kernels::cuda {
namespace {

constexpr int kThreads = 128;
constexpr int kTokenThreads = 256;

template <bool packed>
__global__ void gather_rows_kernel(const float* x, const std::int32_t* rows, std::int64_t width, float* out) {
  wait_for_stream();
  const float* from = x + rows[blockIdx.x] * width;
  float* to = out + static_cast<std::int64_t>(blockIdx.x) * width;
  const std::int64_t quads = ceil_divide<std::int64_t>(width, kQuad);
  for (std::int64_t q = blockIdx.y * kThreads + threadIdx.x; q < quads; q += gridDim.y * kThreads) {
    store_quad<packed>(to, q, width, load_quad<packed>(from, q, width));
  }
}

__global__ void gather_tokens_kernel(GatherTokensParams p) {
  wait_for_stream();
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * kTokenThreads + threadIdx.x;
  if (i >= p.count) return;
  const std::int32_t token = p.table[p.slots[i]];
  p.out[i] = token < p.vocab ? token : 0;
}

__global__ void scatter_tokens_kernel(ScatterTokensParams p) {
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * kTokenThreads + threadIdx.x;
  if (i < p.count && p.slots[i] >= 0) p.table[p.slots[i]] = max(0, p.tokens[i * p.token_stride]);
}

/// Returns a grid with one thread per element.
dim3 token_grid(std::int64_t count) {
  return dim3(static_cast<unsigned>(ceil_divide<std::int64_t>(count, kTokenThreads)));
}

template <class From, class To, bool packed>
__global__ void convert_kernel(const From* from, To* to, std::int64_t count) {
  const std::int64_t quads = ceil_divide<std::int64_t>(count, kQuad);
  const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * kThreads;
  for (std::int64_t q = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x; q < quads; q += step) {
    store_quad<packed>(to, q, count, load_quad<packed>(from, q, count));
  }
}

}  // namespace

Status cuda_gather_rows(cudaStream_t stream, const GatherRowsParams& p) {
  return with_packed(may_pack(p.width, p.x, p.out), [&](auto packed) {
    return launch(Start::early, "gather_rows", gather_rows_kernel<packed.value>,
                  row_grid(p.num_rows, p.width, kThreads), dim3(kThreads), 0, stream, p.x, p.rows, p.width, p.out);
  });
}

Status cuda_gather_tokens(cudaStream_t stream, const GatherTokensParams& p) {
  return launch(Start::early, "gather_tokens", gather_tokens_kernel, token_grid(p.count), dim3(kTokenThreads), 0,
                stream, p);
}

Status cuda_scatter_tokens(cudaStream_t stream, const ScatterTokensParams& p) {
  return launch("scatter_tokens", scatter_tokens_kernel, token_grid(p.count), dim3(kTokenThreads), 0, stream, p);
}

Status cuda_convert(cudaStream_t stream, const ConvertParams& p) {
  if (p.count == 0) return {};
  constexpr std::int64_t kMaxBlocks = std::int64_t{1} << 16;
  const std::int64_t blocks = ceil_divide<std::int64_t>(p.count, kQuad * kThreads);
  const dim3 grid(static_cast<unsigned>(blocks < kMaxBlocks ? blocks : kMaxBlocks));
  return with_element(p.from_dtype, [&](auto from) {
    return with_element(p.to_dtype, [&](auto to) {
      return with_packed(may_pack(p.count, p.from, p.to), [&](auto packed) {
        using From = decltype(from);
        using To = decltype(to);
        return launch("convert", convert_kernel<From, To, packed.value>, grid, dim3(kThreads), 0, stream,
                      static_cast<const From*>(p.from), static_cast<To*>(p.to), p.count);
      });
    });
  });
}

Status cuda_copy(cudaStream_t stream, const CopyParams& p) {
  if (p.bytes == 0) return {};
  return check(cudaMemcpyAsync(p.to, p.from, p.bytes, cudaMemcpyDefault, stream), "copy: cudaMemcpyAsync");
}

}  // namespace pagoda::kernels::cuda

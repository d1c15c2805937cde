#include "kernels/cuda/bias.hpp"
#include "kernels/cuda/element.cuh"
#include "kernels/cuda/launch.hpp"

namespace pagoda::kernels::cuda {
namespace {

constexpr int kThreads = 256;

unsigned blocks_for(std::int64_t count) {
  return static_cast<unsigned>((count + kThreads - 1) / kThreads);
}

__global__ void widen_bias_kernel(const void* bias, DType dtype, std::int64_t count, float* out) {
  const std::int64_t i = std::int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i < count) out[i] = bias == nullptr ? 0.0F : load_element(bias, dtype, i);
}

// Adds bias [columns] to each row of out [rows, out_stride]. Block (c, r): 256 columns of row r.
__global__ void add_bias_kernel(const float* bias, std::int64_t columns, std::int64_t out_stride, float* out) {
  const std::int64_t i = std::int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i < columns) out[std::int64_t{blockIdx.y} * out_stride + i] += bias[i];
}

}  // namespace

Status widen_bias(cudaStream_t stream, const void* bias, DType dtype, std::int64_t count, float* out) {
  return launch("widen_bias", widen_bias_kernel, dim3(blocks_for(count)), dim3(kThreads), 0, stream, bias, dtype, count,
                out);
}

Status add_bias(cudaStream_t stream, const GemmParams& params) {
  constexpr std::int64_t kMaxRows = 65535;  // maximum of a grid's second dimension
  for (std::int64_t first = 0; first < params.rows; first += kMaxRows) {
    const auto rows = static_cast<unsigned>(params.rows - first < kMaxRows ? params.rows - first : kMaxRows);
    const Status status =
        launch("add_bias", add_bias_kernel, dim3(blocks_for(params.columns), rows), dim3(kThreads), 0, stream,
               params.bias, params.columns, params.out_stride, params.out + first * params.out_stride);
    if (!status) return status;
  }
  return {};
}

}  // namespace pagoda::kernels::cuda

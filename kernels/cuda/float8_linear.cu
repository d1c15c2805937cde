#include <algorithm>
#include <cstdint>

#include "kernels/cuda/dequantized_gemm.hpp"
#include "kernels/cuda/element.cuh"
#include "kernels/cuda/float8.cuh"
#include "kernels/cuda/float8_linear.hpp"
#include "kernels/cuda/launch.hpp"
#include "kernels/cuda/linear.hpp"
#include "kernels/cuda/skinny_linear.hpp"

namespace pagoda::kernels::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kPerThread = 16;  ///< columns of a thread

struct WidenArgs {
  const std::uint8_t* data = nullptr;  ///< data of the first row
  const float* scales = nullptr;       ///< scales of the matrix
  std::int64_t first_row = 0;
  std::int64_t scale_rows = 1;
  std::int64_t scales_of_row = 1;
  int scale_shift = 31;
  std::int64_t chunks = 0;  ///< chunks of kPerThread columns in all rows
  int chunks_of_row = 0;
  __nv_bfloat16* to = nullptr;  ///< [rows, in]
};

// Multiplies 8-bit floats [rows, in] with their scales and writes bfloat16. Each thread converts kPerThread columns,
// which share one scale.
__global__ __launch_bounds__(kThreads) void widen_float8_kernel(const WidenArgs args) {
  const std::int64_t chunk = std::int64_t{blockIdx.x} * kThreads + threadIdx.x;
  const uint4 words = load_once(reinterpret_cast<const uint4*>(args.data) + chunk, chunk < args.chunks);
  wait_for_stream();  // before the scratch memory is written
  if (chunk >= args.chunks) return;
  const std::int64_t row = chunk / args.chunks_of_row;
  const int column = static_cast<int>(chunk - row * args.chunks_of_row) * kPerThread;
  const std::int64_t first_scale = (args.first_row + row) / args.scale_rows * args.scales_of_row;
  const float scale = args.scales[first_scale + (column >> args.scale_shift)];
  const auto pair_of = [&](std::uint32_t four) -> uint2 {
    const float4 w = floats_of_e4m3(four);
    return {word_of<__nv_bfloat16>(w.x * scale, w.y * scale), word_of<__nv_bfloat16>(w.z * scale, w.w * scale)};
  };
  const uint2 a = pair_of(words.x);
  const uint2 b = pair_of(words.y);
  const uint2 c = pair_of(words.z);
  const uint2 d = pair_of(words.w);
  auto* to = reinterpret_cast<uint4*>(args.to) + 2 * chunk;
  to[0] = {a.x, a.y, b.x, b.y};
  to[1] = {c.x, c.y, d.x, d.y};
}

/// Converts rows [first, first + count) of a matrix to bfloat16.
Status widen(cudaStream_t stream, const WeightMatrix& w, std::int64_t first, std::int64_t count, void* to) {
  WidenArgs args;
  args.data = static_cast<const std::uint8_t*>(w.data) + first * w.columns;
  args.scales = w.scales;
  args.first_row = first;
  args.scale_rows = w.scale_rows;
  args.scales_of_row = w.scales_of_row();
  args.scale_shift = scale_shift(w.scale_columns, w.columns);
  args.chunks_of_row = static_cast<int>(w.columns / kPerThread);
  args.chunks = count * args.chunks_of_row;
  args.to = static_cast<__nv_bfloat16*>(to);
  const dim3 grid(static_cast<unsigned>(ceil_divide<std::int64_t>(args.chunks, kThreads)));
  return launch(Start::early, "widen_float8", widen_float8_kernel, grid, dim3(kThreads), 0, stream, args);
}

}  // namespace

Status float8_linear(CudaStream& stream, const LinearParams& p, std::size_t max_bytes) {
  if (p.num_tokens <= kMaxSkinnyFloat8Rows || !reads_in_vectors(p) || !fits_gemm(p)) {
    return skinny_linear(stream.get(), p);
  }
  return multiply_dequantized(
      stream, p,
      [&](std::int64_t first, std::int64_t count, void* to) {
        return narrow_rows(stream.get(), p.x + first * p.in, count * p.in, DType::bf16, to);
      },
      [&](std::size_t part, std::int64_t first, std::int64_t count, void* to) {
        return widen(stream.get(), p.weights[part], first, count, to);
      },
      max_bytes);
}

}  // namespace pagoda::kernels::cuda

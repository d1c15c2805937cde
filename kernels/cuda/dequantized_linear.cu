#include <cstdint>

#include "kernels/cuda/dequantized_gemm.hpp"
#include "kernels/cuda/dequantized_linear.hpp"
#include "kernels/cuda/element.cuh"
#include "kernels/cuda/launch.hpp"
#include "kernels/cuda/linear.hpp"
#include "kernels/cuda/quantized_words.cuh"
#include "kernels/cuda/rotation.cuh"

namespace pagoda::kernels::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kStore = 8;  ///< elements that a thread writes at once

/// Words of 4 bytes per row of a tile, in whole blocks. A tile has the rows of a panel.
template <Coding coding>
constexpr int kTileWords = 64 / kBlockWords<coding>* kBlockWords<coding>;
/// Stores of kStore columns per row of a tile.
template <Coding coding>
constexpr int kTileStores = kTileWords<coding> / kBlockWords<coding>* kBlockColumns<coding> / kStore;

struct DequantizeArgs {
  const std::uint8_t* data = nullptr;  ///< data of the first panel
  GridMemory grids;                    ///< scales and minimums of the first panel
  int rows = 0;                        ///< rows to write
  int in = 0;                          ///< columns, a multiple of kStore
  int padded_columns = 0;
  int panel_scales = 0;
  int panel_factors = 0;
  int zero_point = 0;
  CodebookWords table = {};
  __nv_bfloat16* to = nullptr;  ///< [rows, in]
};

/// Returns the eight columns of store `store` of a tile's row, one byte per integer.
template <Coding coding>
__device__ __forceinline__ uint2 eight_integers(const std::uint32_t* row, int pitch, int store,
                                                const CodebookWords& table) {
  if constexpr (coding == Coding::int8) return {row[2 * store * pitch], row[(2 * store + 1) * pitch]};
  constexpr int kPairs = kPairsOf<coding>;
  const std::uint32_t* block = row + store / kPairs * kBlockWords<coding> * pitch;
  const std::uint32_t low = block[store % kPairs * pitch];
  const std::uint32_t high = kHighBits<coding> == 0 ? 0U : block[(kBlockWords<coding> - 1) * pitch];
  return two_quads<coding>(low, high, store % kPairs, table);
}

// Converts panels of integers to bfloat16 [rows, in]. Block (panel, piece of its columns) reads the words in memory
// order and writes row by row.
template <Coding coding, bool kTwoLevel>
__global__ __launch_bounds__(kThreads) void dequantize_kernel(const DequantizeArgs args) {
  constexpr int kPitch = kPanelRows + 1;
  constexpr int kWords = kTileWords<coding>;
  constexpr int kStores = kTileStores<coding>;
  __shared__ std::uint32_t tile[kWords * kPitch];
  const int panel = static_cast<int>(blockIdx.x);
  const int first_word = static_cast<int>(blockIdx.y) * kWords;
  const int words = args.padded_columns / kBlockColumns<coding> * kBlockWords<coding>;
  const auto* from = reinterpret_cast<const std::uint32_t*>(args.data) + std::int64_t{panel} * words * kPanelRows;
  const int thread = static_cast<int>(threadIdx.x);
  for (int i = thread; i < kWords * kPanelRows; i += kThreads) {
    const int word = i / kPanelRows;
    const int row = i % kPanelRows;
    if (first_word + word < words) tile[word * kPitch + row] = from[std::int64_t{first_word} * kPanelRows + i];
  }
  wait_for_stream();  // before the scratch memory is written
  __syncthreads();
  const std::int64_t first_scale = std::int64_t{panel} * args.panel_scales;
  const std::int64_t first_factor = std::int64_t{panel} * args.panel_factors;
  for (int i = thread; i < kStores * kPanelRows; i += kThreads) {
    const int row = i / kStores;
    const int store = i % kStores;
    const int column = (static_cast<int>(blockIdx.y) * kStores + store) * kStore;
    const int to_row = panel * kPanelRows + row;
    if (to_row >= args.rows || column >= args.in) continue;
    const uint2 quads = eight_integers<coding>(tile + row, kPitch, store, args.table);
    const float2 grid = args.grids.grid<kTwoLevel>(first_scale, first_factor, column, row);
    float values[kStore];
#pragma unroll
    for (int k = 0; k < kStore; ++k) {
      values[k] = fmaf(byte_of<coding>(k < 4 ? quads.x : quads.y, k % 4, args.zero_point), grid.x, grid.y);
    }
    uint4 packed;
    packed.x = word_of<__nv_bfloat16>(values[0], values[1]);
    packed.y = word_of<__nv_bfloat16>(values[2], values[3]);
    packed.z = word_of<__nv_bfloat16>(values[4], values[5]);
    packed.w = word_of<__nv_bfloat16>(values[6], values[7]);
    *reinterpret_cast<uint4*>(args.to + std::int64_t{to_row} * args.in + column) = packed;
  }
}

template <Coding coding>
Status launch_dequantize(cudaStream_t stream, const DequantizeArgs& args, bool two_level_scales) {
  constexpr std::int64_t kColumns = std::int64_t{kTileStores<coding>} * kStore;
  const dim3 grid(static_cast<unsigned>(ceil_divide(args.rows, kPanelRows)),
                  static_cast<unsigned>(ceil_divide<std::int64_t>(args.in, kColumns)));
  auto* kernel = dequantize_kernel<coding, false>;
  if constexpr (kMayBeTwoLevel<coding>) {
    if (two_level_scales) kernel = dequantize_kernel<coding, true>;
  }
  return launch(Start::early, "dequantize", kernel, grid, dim3(kThreads), 0, stream, args);
}

/// Converts rows [first, first + count) of a matrix; `first` is a multiple of the rows of a panel.
Status dequantize(cudaStream_t stream, const QuantizedMatrix& w, std::int64_t first, std::int64_t count, void* to) {
  const std::int64_t panel = first / kQuantizedPanel;
  const QuantizedFormat& format = w.format;
  DequantizeArgs args;
  args.data = w.data + panel * w.panel_bytes();
  args.grids = grids_of(w, panel);
  args.rows = static_cast<int>(count);
  args.in = static_cast<int>(w.columns);
  args.padded_columns = static_cast<int>(w.padded_columns());
  args.panel_scales = static_cast<int>(w.panel_scales());
  args.panel_factors = static_cast<int>(w.panel_factors());
  args.zero_point = format.zero_point();
  args.table = words_of(format.codebook);
  args.to = static_cast<__nv_bfloat16*>(to);
  return with_coding(
      format, [&](auto coding) { return launch_dequantize<coding.value>(stream, args, format.two_level_scales); });
}

// Writes the rotated x as bfloat16; count is a multiple of kRotationBlock.
__global__ __launch_bounds__(kThreads) void rotate_rows_kernel(const float* x, std::int64_t count, __nv_bfloat16* to) {
  const std::int64_t i = std::int64_t{blockIdx.x} * kThreads + threadIdx.x;
  wait_for_stream();
  if (i >= count) return;  // the condition is equal for all lanes of a warp
  to[i] = __float2bfloat16_rn(rotated_x(x[i], static_cast<int>(threadIdx.x) % 32));
}

// Writes the columns of x [rows, in] in `order`, as bfloat16; count = rows * in.
__global__ __launch_bounds__(kThreads) void order_rows_kernel(const float* x, const std::int32_t* order, int in,
                                                              std::int64_t count, __nv_bfloat16* to) {
  const std::int64_t i = std::int64_t{blockIdx.x} * kThreads + threadIdx.x;
  wait_for_stream();
  if (i >= count) return;
  const std::int64_t row = i / in;
  to[i] = __float2bfloat16_rn(x[row * in + order[i - row * in]]);
}

/// Writes rows of x to scratch, rotated or reordered as the weights are.
Status narrow_x(cudaStream_t stream, const QuantizedLinearParams& p, std::int64_t first, std::int64_t count, void* to) {
  const float* x = p.x + first * p.in;
  const QuantizedMatrix& front = p.weights.front();
  const dim3 grid(static_cast<unsigned>(ceil_divide<std::int64_t>(count * p.in, kThreads)));
  if (front.order != nullptr) {
    return launch(Start::early, "order_rows", order_rows_kernel, grid, dim3(kThreads), 0, stream, x, front.order,
                  static_cast<int>(p.in), count * p.in, static_cast<__nv_bfloat16*>(to));
  }
  if (!front.format.rotated) return narrow_rows(stream, x, count * p.in, DType::bf16, to);
  return launch(Start::early, "rotate_rows", rotate_rows_kernel, grid, dim3(kThreads), 0, stream, x, count * p.in,
                static_cast<__nv_bfloat16*>(to));
}

/// Returns whether fits_gemm() is true and a row of x consists of whole stores and, if rotated, whole rotation blocks.
bool fits(const QuantizedLinearParams& p) {
  const bool rotates = p.weights.front().format.rotated;
  return fits_gemm(p) && p.in % kStore == 0 && (!rotates || p.in % kRotationBlock == 0);
}

}  // namespace

Status dequantized_linear(CudaStream& stream, const QuantizedLinearParams& p) {
  if (!fits(p)) return fail(ErrorCode::unsupported, "dequantized_linear: rows that are not aligned");
  return multiply_dequantized(
      stream, p,
      [&](std::int64_t first, std::int64_t count, void* to) { return narrow_x(stream.get(), p, first, count, to); },
      [&](std::size_t part, std::int64_t first, std::int64_t count, void* to) {
        return dequantize(stream.get(), p.weights[part], first, count, to);
      });
}

}  // namespace pagoda::kernels::cuda

#include <algorithm>
#include <string>

#include "kernels/cuda/bias.hpp"
#include "kernels/cuda/dequantized_linear.hpp"
#include "kernels/cuda/element.cuh"
#include "kernels/cuda/launch.hpp"
#include "kernels/cuda/linear.hpp"
#include "kernels/cuda/rotation.cuh"

namespace pagoda::kernels::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kPanel = static_cast<int>(kQuantizedPanel);
constexpr int kTileWords = 64;  ///< of a row: a tile is a panel's rows by so many words of 4 bytes
constexpr int kStore = 8;       ///< elements that a thread writes together

struct DequantizeArgs {
  const std::uint8_t* data = nullptr;  ///< of the first panel
  const __half* scales = nullptr;      ///< likewise
  const __half* mins = nullptr;        ///< likewise; null = symmetric
  int rows = 0;                        ///< to write
  int in = 0;                          ///< a multiple of kStore
  int padded_columns = 0;
  int group_size = 0;
  int zero_point = 0;
  __nv_bfloat16* to = nullptr;  ///< [rows, in]
};

/// Eight neighbouring columns of a row, less `zero_point`, as floats, from the words of the tile's row.
template <int kBits>
__device__ __forceinline__ void unpack(const std::uint32_t* words, int stride, int zero_point,
                                       float (&values)[kStore]) {
#pragma unroll
  for (int i = 0; i < kStore; ++i) {
    std::uint32_t q = 0;
    if constexpr (kBits == 8) {
      q = words[i / 4 * stride] >> (i % 4 * 8) & 0xFFU;
    } else {
      q = words[0] >> (i % 4 * 8 + i / 4 * 4) & 0xFU;  // column i in the low half of byte i, i + 4 in its high half
    }
    values[i] = static_cast<float>(static_cast<int>(q) - zero_point);
  }
}

// Panels of integers -> [rows, in]. Block (panel, piece of its columns): read as they lie, written row by row.
template <int kBits>
__global__ __launch_bounds__(kThreads) void dequantize_kernel(const DequantizeArgs args) {
  constexpr int kPitch = kPanel + 1;
  constexpr int kWordColumns = 32 / kBits;
  constexpr int kStoreWords = kStore / kWordColumns;
  __shared__ std::uint32_t tile[kTileWords * kPitch];
  const int panel = static_cast<int>(blockIdx.x);
  const int first_word = static_cast<int>(blockIdx.y) * kTileWords;
  const int words = args.padded_columns / kWordColumns;
  const auto* from = reinterpret_cast<const std::uint32_t*>(args.data) + std::int64_t{panel} * words * kPanel;
  const int thread = static_cast<int>(threadIdx.x);
  for (int i = thread; i < kTileWords * kPanel; i += kThreads) {
    const int word = i / kPanel;
    const int row = i % kPanel;
    if (first_word + word < words) tile[word * kPitch + row] = from[std::int64_t{first_word} * kPanel + i];
  }
  wait_for_stream();  // before the scratch memory is written
  __syncthreads();
  constexpr int kRowStores = kTileWords / kStoreWords;
  const int groups = args.padded_columns / args.group_size;
  for (int i = thread; i < kRowStores * kPanel; i += kThreads) {
    const int row = i / kRowStores;
    const int word = i % kRowStores * kStoreWords;
    const int column = (first_word + word) * kWordColumns;
    const int to_row = panel * kPanel + row;
    if (to_row >= args.rows || column >= args.in) continue;
    float values[kStore];
    unpack<kBits>(tile + word * kPitch + row, kPitch, args.zero_point, values);
    const std::int64_t group = (std::int64_t{panel} * groups + column / args.group_size) * kPanel + row;
    const float scale = to_float(args.scales[group]);
    const float min = args.mins == nullptr ? 0.0F : to_float(args.mins[group]);
#pragma unroll
    for (float& value : values) value = fmaf(value, scale, min);
    uint4 packed;
    packed.x = word_of<__nv_bfloat16>(values[0], values[1]);
    packed.y = word_of<__nv_bfloat16>(values[2], values[3]);
    packed.z = word_of<__nv_bfloat16>(values[4], values[5]);
    packed.w = word_of<__nv_bfloat16>(values[6], values[7]);
    *reinterpret_cast<uint4*>(args.to + std::int64_t{to_row} * args.in + column) = packed;
  }
}

/// Rows [first, first + count) of a matrix; `first` is a multiple of a panel.
Status dequantize(cudaStream_t stream, const QuantizedMatrix& w, std::int64_t first, std::int64_t count, void* to) {
  const std::int64_t panel = first / kQuantizedPanel;
  DequantizeArgs args;
  args.data = w.data + panel * w.panel_bytes();
  args.scales = reinterpret_cast<const __half*>(w.scales) + panel * w.panel_scales();
  if (w.format.asymmetric) args.mins = reinterpret_cast<const __half*>(w.mins) + panel * w.panel_scales();
  args.rows = static_cast<int>(count);
  args.in = static_cast<int>(w.columns);
  args.padded_columns = static_cast<int>(w.padded_columns());
  args.group_size = static_cast<int>(w.format.group_size);
  args.zero_point = w.format.zero_point();
  args.to = static_cast<__nv_bfloat16*>(to);
  const std::int64_t tile_columns = std::int64_t{kTileWords} * 32 / w.format.bits;
  const dim3 grid(static_cast<unsigned>(ceil_divide(count, kQuantizedPanel)),
                  static_cast<unsigned>(ceil_divide(w.columns, tile_columns)));
  return launch(Start::early, "dequantize", w.format.bits == 8 ? dequantize_kernel<8> : dequantize_kernel<4>, grid,
                dim3(kThreads), 0, stream, args);
}

// x -> rotated, as bfloat16; count is a multiple of kRotationBlock.
__global__ __launch_bounds__(kThreads) void rotate_rows_kernel(const float* x, std::int64_t count, __nv_bfloat16* to) {
  const std::int64_t i = std::int64_t{blockIdx.x} * kThreads + threadIdx.x;
  wait_for_stream();
  if (i >= count) return;  // a whole warp
  to[i] = __float2bfloat16_rn(rotated_x(x[i], static_cast<int>(threadIdx.x) % 32));
}

/// Rows of x in scratch, as the weights will be.
Status narrow_x(cudaStream_t stream, const QuantizedLinearParams& p, std::int64_t first, std::int64_t count, void* to) {
  const float* x = p.x + first * p.in;
  if (!p.weights.front().format.rotated) return narrow_rows(stream, x, count * p.in, DType::bf16, to);
  const dim3 grid(static_cast<unsigned>(ceil_divide<std::int64_t>(count * p.in, kThreads)));
  return launch(Start::early, "rotate_rows", rotate_rows_kernel, grid, dim3(kThreads), 0, stream, x, count * p.in,
                static_cast<__nv_bfloat16*>(to));
}

constexpr std::int64_t kElementBytes = sizeof(__nv_bfloat16);

/// Rows of a matrix that are dequantised together.
std::int64_t rows_of_piece(const QuantizedLinearParams& p) {
  std::int64_t most_rows = 0;
  for (const QuantizedMatrix& weight : p.weights) most_rows = std::max(most_rows, weight.rows);
  return rows_per_pass(most_rows, p.in * kElementBytes, kMostScratchBytes);
}

/// What lies where in the scratch of a call.
struct Scratch {
  std::byte* x = nullptr;
  std::byte* weight = nullptr;
  float* bias = nullptr;
};

/// Rows [first, first + count) of part `index`, whose outputs begin at `out`, for all rows of x in scratch.
Status multiply_piece(CudaStream& stream, Gemm& gemm, const QuantizedLinearParams& p, std::size_t index,
                      std::int64_t first, std::int64_t count, const Scratch& scratch, std::int64_t num_tokens,
                      float* out) {
  const QuantizedMatrix& weight = p.weights[index];
  Status status = dequantize(stream.get(), weight, first, count, scratch.weight);
  const void* bias = p.biases.empty() ? nullptr : p.biases[index];
  if (status && bias != nullptr) {
    const auto offset = first * static_cast<std::int64_t>(size_of(p.bias_dtype));
    status = widen_bias(stream.get(), static_cast<const std::byte*>(bias) + offset, p.bias_dtype, count, scratch.bias);
  }
  if (!status) return status;
  status = gemm.multiply(stream.get(), {.x = scratch.x,
                                        .weight = scratch.weight,
                                        .dtype = DType::bf16,
                                        .rows = num_tokens,
                                        .in = p.in,
                                        .columns = count,
                                        .bias = bias == nullptr ? nullptr : scratch.bias,
                                        .out = out + first,
                                        .out_stride = p.out_stride,
                                        .accumulate = p.accumulate});
  if (status || status.error().code != ErrorCode::unsupported) return status;
  return fail(ErrorCode::internal, "dequantized_linear: " + status.error().message);  // others may be done already
}

/// Whether everything lies so that cuBLASLt takes it: outputs at multiples of 16 bytes, inputs in whole stores and
/// blocks of a rotation.
bool fits(const QuantizedLinearParams& p) {
  constexpr std::int64_t kOutFloats = 4;
  bool aligned = p.in % kStore == 0 && p.out_stride % kOutFloats == 0 && all_aligned_16(p.x, p.out);
  if (p.weights.front().format.rotated) aligned = aligned && p.in % kRotationBlock == 0;
  for (const QuantizedMatrix& weight : p.weights) aligned = aligned && weight.rows % kOutFloats == 0;
  return aligned;
}

}  // namespace

Status dequantized_linear(CudaStream& stream, const QuantizedLinearParams& p) {
  if (!fits(p)) return fail(ErrorCode::unsupported, "dequantized_linear: rows that are not aligned");
  const Result<Gemm*> gemm = stream.gemm();
  if (!gemm) return fail(gemm.error());
  constexpr std::size_t kAlignment = 256;
  const auto area = [](std::int64_t bytes) {
    return ceil_divide(static_cast<std::size_t>(bytes), kAlignment) * kAlignment;
  };
  const std::int64_t tokens = rows_per_pass(p.num_tokens, p.in * kElementBytes, kMostScratchBytes);
  const std::int64_t piece = rows_of_piece(p);
  const std::size_t x_bytes = area(tokens * p.in * kElementBytes);
  const std::size_t weight_bytes = area(piece * p.in * kElementBytes);
  const std::size_t bias_bytes = area(piece * static_cast<std::int64_t>(sizeof(float)));
  const Result<std::byte*> memory = stream.scratch(x_bytes + weight_bytes + bias_bytes);
  if (!memory) return fail(memory.error());
  const Scratch scratch{*memory, *memory + x_bytes, reinterpret_cast<float*>(*memory + x_bytes + weight_bytes)};
  for (std::int64_t first_token = 0; first_token < p.num_tokens; first_token += tokens) {
    const std::int64_t count = std::min(tokens, p.num_tokens - first_token);
    Status status = narrow_x(stream.get(), p, first_token, count, scratch.x);
    float* out = p.out + first_token * p.out_stride;
    for (std::size_t i = 0; i < p.weights.size(); ++i) {
      const std::int64_t rows = p.weights[i].rows;
      for (std::int64_t first = 0; first < rows && status; first += piece) {
        status = multiply_piece(stream, **gemm, p, i, first, std::min(piece, rows - first), scratch, count, out);
      }
      out += rows;
    }
    if (!status) return status;
  }
  return {};
}

}  // namespace pagoda::kernels::cuda

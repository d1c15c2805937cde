#include <algorithm>

#include "kernels/cuda/dequantized_linear.hpp"
#include "kernels/cuda/launch.hpp"
#include "kernels/cuda/linear.hpp"
#include "kernels/cuda/quantized_fragments.cuh"
#include "kernels/cuda/quantized_linear.hpp"
#include "kernels/cuda/rotation.cuh"

namespace pagoda::kernels::cuda {
namespace {

constexpr int kMostParts = 4;

struct QuantizedPart {
  const std::uint8_t* data = nullptr;
  const __half* scales = nullptr;
  const __half* mins = nullptr;  ///< null = symmetric
  const void* bias = nullptr;
  int rows = 0;
  int panels = 0;
  int first_block = 0;
  int first_column = 0;  ///< of out
};

/// What the kernels that multiply are given.
struct QuantizedArgs {
  const std::int8_t* x = nullptr;   ///< QuantizedX
  const float* x_scales = nullptr;  ///< likewise
  const float* x_sums = nullptr;    ///< likewise, of asymmetric weights
  float* out = nullptr;
  std::int64_t out_stride = 0;
  int num_tokens = 0;
  int tokens = 0;          ///< filled up
  int x_columns = 0;       ///< filled up
  int padded_columns = 0;  ///< of the weights
  Groups groups;
  int num_parts = 0;
  int num_blocks = 0;
  DType bias_dtype = DType::f32;
  bool accumulate = false;
  QuantizedPart parts[kMostParts];
};

/// Panels per block are counted part by part: a block never crosses a part.
__device__ int part_of_block(const QuantizedArgs& args, int block) {
  int part = 0;
  while (part + 1 < args.num_parts && block >= args.parts[part + 1].first_block) ++part;
  return part;
}

/// A part's panel `index`.
template <int kBits>
__device__ PanelMemory panel_of(const QuantizedArgs& args, const QuantizedPart& part, std::int64_t index) {
  constexpr int kRows = static_cast<int>(kQuantizedPanel);
  const std::int64_t first_scale = index * kRows * args.groups.count;
  return {part.data + index * (kRows * std::int64_t{args.padded_columns} * kBits / 8), part.scales + first_scale,
          part.mins == nullptr ? nullptr : part.mins + first_scale};
}

__device__ float bias_of(const QuantizedArgs& args, const QuantizedPart& part, int row) {
  if (part.bias == nullptr || row >= part.rows) return 0.0F;
  return load_element(part.bias, args.bias_dtype, row);
}

__device__ void write_sum(const QuantizedArgs& args, const QuantizedPart& part, int row, int token, float sum) {
  if (row >= part.rows || token >= args.num_tokens) return;
  float& out = args.out[token * args.out_stride + part.first_column + row];
  out = args.accumulate ? out + sum : sum;
}

// --- x to integers --------------------------------------------------------------------------------------------------

constexpr int kQuantizeWarps = 8;

struct QuantizeArgs {
  const float* x = nullptr;
  int num_tokens = 0;
  int in = 0;
  int tokens = 0;
  int x_columns = 0;
  Groups groups;
  bool rotated = false;
  float factor = 1.0F;  ///< of the scales
  std::int8_t* q = nullptr;
  float* scales = nullptr;
  float* sums = nullptr;  ///< null = not wanted
};

// x [num_tokens, in] -> q [tokens, x_columns], scales and sums of scale * q [groups, tokens]. Block (b, t): groups 8b
// .. of token t, one per warp.
__global__ __launch_bounds__(kQuantizeWarps * 32) void quantize_x_kernel(const __grid_constant__ QuantizeArgs args) {
  wait_for_stream();
  constexpr float kLeast = 1e-30F;  // below this all integers are 0, so that 1 / scale has a value
  constexpr int kPerLane = static_cast<int>(kMostGroupSize) / 32;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int group = static_cast<int>(blockIdx.x) * kQuantizeWarps + static_cast<int>(threadIdx.x) / 32;
  const int token = static_cast<int>(blockIdx.y);
  if (group >= args.groups.count) return;
  const int first = group * args.groups.size;
  const int columns = token < args.num_tokens ? min(args.groups.size, args.in - first) : 0;
  const float* x = args.x + std::int64_t{token} * args.in + first;
  float values[kPerLane];
  float most = 0.0F;
  float nan_if_not_finite = 0.0F;
#pragma unroll
  for (int i = 0; i < kPerLane; ++i) {
    const int column = i * 32 + lane;
    values[i] = column < columns ? x[column] : 0.0F;
    if (args.rotated) values[i] = rotated_x(values[i], lane);
    most = fmaxf(most, fabsf(values[i]));
    nan_if_not_finite += values[i] * 0.0F;
  }
  most = warp_max(most) + warp_sum(nan_if_not_finite);
  const float inverse = most >= kLeast ? 127.0F / most : 0.0F;
  // The last group also fills up the row.
  const int end = group + 1 == args.groups.count ? args.x_columns - first : args.groups.size;
  std::int8_t* q = args.q + std::int64_t{token} * args.x_columns + first;
  float sum_of_q = 0.0F;
#pragma unroll
  for (int i = 0; i < kPerLane; ++i) {
    const int column = i * 32 + lane;
    const int integer = __float2int_rn(values[i] * inverse);
    if (column < args.groups.size) q[column] = static_cast<std::int8_t>(integer);
    sum_of_q += static_cast<float>(integer);
  }
  if (args.groups.size + lane < end) q[args.groups.size + lane] = 0;
  const std::int64_t at = std::int64_t{group} * args.tokens + token;
  if (lane == 0) args.scales[at] = most / 127.0F * args.factor;
  if (args.sums == nullptr) return;
  sum_of_q = warp_sum(sum_of_q);
  if (lane == 0) args.sums[at] = most / 127.0F * sum_of_q;
}

// --- Few tokens: the weights are streamed once ----------------------------------------------------------------------

constexpr int kStreamWarps = 8;  ///< of a block: they deal a panel's batches among themselves

/// Blocks per multiprocessor: the compiler's leave to use registers, so that it does not put off loads.
constexpr int resident_blocks(Grouping grouping) {
  return grouping == Grouping::by_fours ? 3 : 2;
}

// Block b: one panel of its part, all tokens.
template <int kBits, Grouping kGrouping, bool kAsymmetric, int kTiles>
__global__ __launch_bounds__(kStreamWarps * 32, resident_blocks(kGrouping)) void stream_panels_kernel(
    const __grid_constant__ QuantizedArgs args) {
  constexpr int kSteps = kBits == 8 ? 4 : 8;
  using Shape = BatchShape<kBits, kGrouping, kSteps, kAsymmetric>;
  constexpr int kEight = static_cast<int>(kTokenTile);
  constexpr int kTokens = kTiles * kEight;
  constexpr int kRows = static_cast<int>(kQuantizedPanel);
  __shared__ float partial[kStreamWarps][kTokens][kRows];
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const int g = lane / 4;
  const int t = lane % 4;
  const QuantizedPart& part = args.parts[part_of_block(args, static_cast<int>(blockIdx.x))];
  const int panel = static_cast<int>(blockIdx.x) - part.first_block;
  const PanelMemory memory = panel_of<kBits>(args, part, panel);
  const std::int8_t* x[kTiles];
#pragma unroll
  for (int n = 0; n < kTiles; ++n) {
    // What a tile has too many are the last token again, and dropped.
    x[n] = args.x + std::int64_t{min(n * kEight + g, args.num_tokens - 1)} * args.x_columns + 8 * t;
  }

  float sums[kTiles][4] = {};
  const auto load = [&](int first) {
    return load_panel<kBits, Shape, kSteps>(memory, first, args.padded_columns, args.groups, lane);
  };
  PanelBatch<Shape, kSteps> next = load(warp * Shape::kColumns);
  wait_for_stream();  // the first weights are on their way already
  for (int first = warp * Shape::kColumns; first < args.padded_columns; first += kStreamWarps * Shape::kColumns) {
    const PanelBatch<Shape, kSteps> batch = next;
    next = load(first + kStreamWarps * Shape::kColumns);
    const auto load_x = [&](int n, int s) {
      const int column = min(first + s * kStepColumns, args.x_columns - kStepColumns);
      return *reinterpret_cast<const uint2*>(x[n] + column);
    };
    const auto load_pair = [&](const float* of, int n, int group) {
      const std::int64_t at = std::int64_t{group} * args.tokens + n * kEight + 2 * t;
      return *reinterpret_cast<const float2*>(of + at);
    };
    const auto load_x_scales = [&](int n, int group) { return load_pair(args.x_scales, n, group); };
    const auto load_x_sums = [&](int n, int group) { return load_pair(args.x_sums, n, group); };
    add_batch<kBits, Shape, kSteps, kTiles>(batch, first, args.groups, lane, load_x, load_x_scales, load_x_sums, sums);
  }
#pragma unroll
  for (int n = 0; n < kTiles; ++n) {
#pragma unroll
    for (int i = 0; i < 4; ++i) partial[warp][n * kEight + 2 * t + i % 2][2 * g + i / 2] = sums[n][i];
  }
  __syncthreads();
  const int token = static_cast<int>(threadIdx.x) / kRows;
  const int row = static_cast<int>(threadIdx.x) % kRows;
  if (token >= kTokens) return;
  float sum = partial[0][token][row];
#pragma unroll
  for (int w = 1; w < kStreamWarps; ++w) sum += partial[w][token][row];
  const int output = panel * kRows + row;
  write_sum(args, part, output, token, sum + bias_of(args, part, output));
}

// --- Many tokens: tiles ---------------------------------------------------------------------------------------------

constexpr int kTileSteps = 4;
constexpr int kTileColumns = kTileSteps * kStepColumns;
constexpr int kTileRowWarps = 4;
constexpr int kTileTokenWarps = 2;
constexpr int kTileThreads = kTileRowWarps * kTileTokenWarps * 32;
constexpr int kWarpTiles = 8;
/// Panels of a warp; small groups need the registers for scales and minimums.
constexpr int panels_of_warp(Grouping grouping, bool asymmetric) {
  if (grouping == Grouping::by_fours) return 2;
  return grouping == Grouping::by_halves || asymmetric ? 1 : 2;
}
constexpr int kTileTokens = kTileTokenWarps * kWarpTiles * static_cast<int>(kTokenTile);
/// From one token to the next in shared memory: eight lanes' rows begin in different banks.
constexpr int kSharedStride = kTileColumns + 32;

/// Starts to copy columns [first, first + kTileColumns) of the block's tokens to shared memory; zeros behind the ends.
__device__ void stage_x(const QuantizedArgs& args, int first_token, int first_column, std::int8_t* to) {
  constexpr int kPieces = kTileColumns / 16;
#pragma unroll
  for (int i = static_cast<int>(threadIdx.x); i < kTileTokens * kPieces; i += kTileThreads) {
    const int token = first_token + i / kPieces;
    const int column = first_column + i % kPieces * 16;
    const bool inside = token < args.tokens && column < args.x_columns;
    const std::int8_t* from = args.x + (inside ? std::int64_t{token} * args.x_columns + column : 0);
    copy_async_16(to + i / kPieces * kSharedStride + i % kPieces * 16, from, inside ? 16 : 0);
  }
  copy_async_commit();
}

// Block (m, b): 8 (or 4) panels of a part, 128 tokens. Warps: 4 by 2, each 2 (or 1) panels by 64 tokens.
template <int kBits, Grouping kGrouping, bool kAsymmetric>
__global__ __launch_bounds__(kTileThreads, 1) void multiply_tiles_kernel(const __grid_constant__ QuantizedArgs args) {
  using Shape = BatchShape<kBits, kGrouping, kTileSteps, kAsymmetric>;
  __shared__ __align__(16) std::int8_t staged[2][kTileTokens * kSharedStride];
  constexpr int kWarpPanels = panels_of_warp(kGrouping, kAsymmetric);
  constexpr int kEight = static_cast<int>(kTokenTile);
  constexpr int kRows = static_cast<int>(kQuantizedPanel);
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const int g = lane / 4;
  const int t = lane % 4;
  const QuantizedPart& part = args.parts[part_of_block(args, static_cast<int>(blockIdx.y))];
  const int first_panel =
      ((static_cast<int>(blockIdx.y) - part.first_block) * kTileRowWarps + warp % kTileRowWarps) * kWarpPanels;
  const int block_token = static_cast<int>(blockIdx.x) * kTileTokens;
  const int warp_token = warp / kTileRowWarps * kWarpTiles * kEight;
  const int first_token = block_token + warp_token;

  PanelMemory memory[kWarpPanels];
#pragma unroll
  for (int p = 0; p < kWarpPanels; ++p) {
    // What a block has too many are the last panel again, and dropped.
    memory[p] = panel_of<kBits>(args, part, min(first_panel + p, part.panels - 1));
  }
  const auto load = [&](int p, int first) {
    return load_panel<kBits, Shape, kTileSteps>(memory[p], first, args.padded_columns, args.groups, lane);
  };
  const auto load_pair = [&](const float* of, int n, int group) {
    const int token = min(first_token + n * kEight, args.tokens - kEight) + 2 * t;
    return *reinterpret_cast<const float2*>(of + std::int64_t{group} * args.tokens + token);
  };
  const auto load_x_scales = [&](int n, int group) { return load_pair(args.x_scales, n, group); };
  const auto load_x_sums = [&](int n, int group) { return load_pair(args.x_sums, n, group); };

  float sums[kWarpPanels][kWarpTiles][4] = {};
  PanelBatch<Shape, kTileSteps> batch[kWarpPanels];
#pragma unroll
  for (int p = 0; p < kWarpPanels; ++p) batch[p] = load(p, 0);
  stage_x(args, block_token, 0, staged[0]);
  int stage = 0;
  for (int first = 0; first < args.padded_columns; first += kTileColumns, stage ^= 1) {
    copy_async_wait<0>();
    __syncthreads();  // this batch is there, and nobody reads the one before any more
    if (first + kTileColumns < args.padded_columns) {
      stage_x(args, block_token, first + kTileColumns, staged[stage ^ 1]);
    }
    const std::int8_t* x = staged[stage] + (warp_token + g) * kSharedStride + 8 * t;
    const auto load_x = [&](int n, int s) {
      return *reinterpret_cast<const uint2*>(x + n * kEight * kSharedStride + s * kStepColumns);
    };
#pragma unroll
    for (int p = 0; p < kWarpPanels; ++p) {
      add_batch<kBits, Shape, kTileSteps, kWarpTiles>(batch[p], first, args.groups, lane, load_x, load_x_scales,
                                                      load_x_sums, sums[p]);
      batch[p] = load(p, first + kTileColumns);  // on its way until the next round
    }
  }
#pragma unroll
  for (int p = 0; p < kWarpPanels; ++p) {
    if (first_panel + p >= part.panels) break;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int row = (first_panel + p) * kRows + 2 * g + half;
      const float bias = bias_of(args, part, row);
#pragma unroll
      for (int n = 0; n < kWarpTiles; ++n) {
        const int token = first_token + n * kEight + 2 * t;
        write_sum(args, part, row, token, sums[p][n][2 * half] + bias);
        write_sum(args, part, row, token + 1, sums[p][n][2 * half + 1] + bias);
      }
    }
  }
}

// --- Launches -------------------------------------------------------------------------------------------------------

/// The arguments for tokens [first, first + count), whose integers are at `x_data`; blocks of `panels_per_block`.
QuantizedArgs args_for(const QuantizedLinearParams& p, const QuantizedX& shape, std::int64_t first, std::int64_t count,
                       void* x_data, int panels_per_block) {
  const QuantizedMatrix& front = p.weights.front();
  QuantizedArgs args;
  args.x = static_cast<const std::int8_t*>(x_data);
  args.x_scales = reinterpret_cast<const float*>(args.x + shape.tokens * shape.columns);
  if (shape.with_sums) args.x_sums = args.x_scales + shape.tokens * shape.groups;
  args.out = p.out + first * p.out_stride;
  args.out_stride = p.out_stride;
  args.num_tokens = static_cast<int>(count);
  args.tokens = static_cast<int>(shape.tokens);
  args.x_columns = static_cast<int>(shape.columns);
  args.padded_columns = static_cast<int>(front.padded_columns());
  args.groups = groups_of(front.format.group_size, shape.groups);
  args.num_parts = static_cast<int>(p.weights.size());
  args.bias_dtype = p.bias_dtype;
  args.accumulate = p.accumulate;
  int column = 0;
  for (std::size_t i = 0; i < p.weights.size(); ++i) {
    const QuantizedMatrix& w = p.weights[i];
    args.parts[i] = {w.data,
                     reinterpret_cast<const __half*>(w.scales),
                     reinterpret_cast<const __half*>(w.mins),
                     p.biases.empty() ? nullptr : p.biases[i],
                     static_cast<int>(w.rows),
                     static_cast<int>(w.panels()),
                     args.num_blocks,
                     column};
    args.num_blocks += (args.parts[i].panels + panels_per_block - 1) / panels_per_block;
    column += args.parts[i].rows;
  }
  return args;
}

Status quantize(cudaStream_t stream, const QuantizedLinearParams& p, const QuantizedX& shape, std::int64_t first,
                std::int64_t count, void* x_data) {
  const QuantizedMatrix& front = p.weights.front();
  QuantizeArgs args;
  args.x = p.x + first * p.in;
  args.num_tokens = static_cast<int>(count);
  args.in = static_cast<int>(p.in);
  args.tokens = static_cast<int>(shape.tokens);
  args.x_columns = static_cast<int>(shape.columns);
  args.groups = groups_of(front.format.group_size, shape.groups);
  args.rotated = front.format.rotated;
  args.factor = front.format.bits == 8 ? 1.0F / kFragmentFactor<8> : 1.0F / kFragmentFactor<4>;
  args.q = static_cast<std::int8_t*>(x_data);
  args.scales = reinterpret_cast<float*>(args.q + shape.tokens * shape.columns);
  if (shape.with_sums) args.sums = args.scales + shape.tokens * shape.groups;
  const dim3 grid(static_cast<unsigned>(ceil_divide<std::int64_t>(shape.groups, kQuantizeWarps)),
                  static_cast<unsigned>(shape.tokens));
  return launch(Start::early, "quantize_x", quantize_x_kernel, grid, dim3(kQuantizeWarps * 32), 0, stream, args);
}

template <int kBits, Grouping kGrouping, bool kAsymmetric>
Status multiply(cudaStream_t stream, const QuantizedLinearParams& p, const QuantizedX& shape, std::int64_t first,
                std::int64_t count, void* x_data) {
  if (p.num_tokens <= kMostStreamedRows) {
    const QuantizedArgs args = args_for(p, shape, first, count, x_data, 1);
    const dim3 grid(static_cast<unsigned>(args.num_blocks));
    const auto kernel = p.num_tokens <= kTokenTile ? stream_panels_kernel<kBits, kGrouping, kAsymmetric, 1>
                                                   : stream_panels_kernel<kBits, kGrouping, kAsymmetric, 2>;
    return launch(Start::early, "stream_panels", kernel, grid, dim3(kStreamWarps * 32), 0, stream, args);
  }
  const QuantizedArgs args =
      args_for(p, shape, first, count, x_data, kTileRowWarps * panels_of_warp(kGrouping, kAsymmetric));
  const dim3 grid(static_cast<unsigned>(ceil_divide<std::int64_t>(count, kTileTokens)),
                  static_cast<unsigned>(args.num_blocks));
  return launch("multiply_tiles", multiply_tiles_kernel<kBits, kGrouping, kAsymmetric>, grid, dim3(kTileThreads), 0,
                stream, args);
}

template <int kBits, bool kAsymmetric>
Status multiply_grouped(cudaStream_t stream, const QuantizedLinearParams& p, const QuantizedX& shape,
                        std::int64_t first, std::int64_t count, void* x_data) {
  switch (grouping_of(p.weights.front().format.group_size)) {
    case Grouping::by_fours:
      return multiply<kBits, Grouping::by_fours, kAsymmetric>(stream, p, shape, first, count, x_data);
    case Grouping::by_steps:
      return multiply<kBits, Grouping::by_steps, kAsymmetric>(stream, p, shape, first, count, x_data);
    case Grouping::by_halves:
      break;
  }
  return multiply<kBits, Grouping::by_halves, kAsymmetric>(stream, p, shape, first, count, x_data);
}

}  // namespace

QuantizedX quantized_x(std::int64_t num_tokens, const QuantizedMatrix& weight) {
  return {ceil_divide(num_tokens, kTokenTile) * kTokenTile,
          ceil_divide<std::int64_t>(weight.padded_columns(), kStepColumns) * kStepColumns, weight.groups(),
          weight.format.asymmetric};
}

Status cuda_quantized_linear(CudaStream& stream, const QuantizedLinearParams& p) {
  if (const QuantizedMatrix& front = p.weights.front();
      front.format != widened(front.format) || front.order != nullptr) {
    return fail(ErrorCode::unsupported,
                "quantized_linear: on a GPU weights have 4 or 8 bits, no codebook and columns in order");
  }
  if (p.num_tokens == 0) return {};
  if (p.num_tokens >= kLeastDequantizedRows) {
    Status status = dequantized_linear(stream, p);
    if (status || status.error().code != ErrorCode::unsupported) return status;
  }
  constexpr std::int64_t kMostRows = 32768;  // of a grid
  const QuantizedMatrix& front = p.weights.front();
  const auto multiply_some = front.format.asymmetric
                                 ? (front.format.bits == 8 ? multiply_grouped<8, true> : multiply_grouped<4, true>)
                                 : (front.format.bits == 8 ? multiply_grouped<8, false> : multiply_grouped<4, false>);
  const std::int64_t row_bytes = quantized_x(kTokenTile, front).bytes() / kTokenTile;
  const std::int64_t rows = std::min(kMostRows, rows_per_pass(p.num_tokens, row_bytes, kMostScratchBytes));
  const Result<std::byte*> scratch = stream.scratch(static_cast<std::size_t>(quantized_x(rows, front).bytes()));
  if (!scratch) return fail(scratch.error());
  for (std::int64_t first = 0; first < p.num_tokens; first += rows) {
    const std::int64_t count = std::min(rows, p.num_tokens - first);
    const QuantizedX shape = quantized_x(count, front);
    Status status = quantize(stream.get(), p, shape, first, count, *scratch);
    if (status) status = multiply_some(stream.get(), p, shape, first, count, *scratch);
    if (!status) return status;
  }
  return {};
}

}  // namespace pagoda::kernels::cuda

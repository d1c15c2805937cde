#pragma once

/// Kernels that multiply integers of x with quantised weights, for one integer format.

#include "kernels/cuda/launch.hpp"
#include "kernels/cuda/quantized_fragments.cuh"
#include "kernels/cuda/quantized_linear.hpp"
#include "kernels/cuda/quantized_products.hpp"

namespace pagoda::kernels::cuda {

constexpr int kMaxParts = 4;

struct QuantizedPart {
  const std::uint8_t* data = nullptr;
  const __half* scales = nullptr;
  const __half* mins = nullptr;          ///< null = symmetric
  const std::int8_t* factors = nullptr;  ///< factors of weights with two-level scales
  const void* bias = nullptr;
  int rows = 0;
  int panels = 0;
  int first_block = 0;
  int first_column = 0;  ///< first column of out
};

/// Arguments of the kernels that multiply.
struct QuantizedArgs {
  const std::int8_t* x = nullptr;   ///< integers, in the layout QuantizedX
  const float* x_scales = nullptr;  ///< scales, in the layout QuantizedX
  const float* x_sums = nullptr;    ///< sums, in the layout QuantizedX, for asymmetric weights
  float* out = nullptr;
  std::int64_t out_stride = 0;
  int num_tokens = 0;
  int tokens = 0;          ///< padded number of tokens
  int x_columns = 0;       ///< padded number of columns of x
  int padded_columns = 0;  ///< padded columns of the weights
  Groups groups;
  int num_parts = 0;
  int num_blocks = 0;
  DType bias_dtype = DType::f32;
  bool accumulate = false;
  CodebookWords table = {};  ///< codebook of the weights
  QuantizedPart parts[kMaxParts];
};

/// Returns the part of a thread block. Panels are assigned to thread blocks part by part: a thread block never crosses
/// a part.
__device__ inline int part_of_block(const QuantizedArgs& args, int block) {
  int part = 0;
  while (part + 1 < args.num_parts && block >= args.parts[part + 1].first_block) ++part;
  return part;
}

/// Returns panel `index` of a part.
template <class Shape>
__device__ PanelMemory panel_of(const QuantizedArgs& args, const QuantizedPart& part, std::int64_t index) {
  constexpr int kKinds = Shape::kHasMins ? 2 : 1;
  constexpr int kScaleColumns = static_cast<int>(kTwoLevelColumns);
  const int scales = Shape::kTwoLevel ? ceil_divide(args.padded_columns, kScaleColumns) : args.groups.count;
  const std::int64_t first_scale = index * kPanelRows * scales;
  const std::int64_t first_factor = index * kKinds * kPanelRows * args.groups.count;
  return {part.data + index * (kPanelRows * std::int64_t{args.padded_columns} * kBitsOf<Shape::kCoding> / 8),
          part.scales + first_scale, part.mins == nullptr ? nullptr : part.mins + first_scale,
          Shape::kTwoLevel ? part.factors + first_factor : nullptr};
}

__device__ inline float bias_of(const QuantizedArgs& args, const QuantizedPart& part, int row) {
  if (part.bias == nullptr || row >= part.rows) return 0.0F;
  return load_element(part.bias, args.bias_dtype, row);
}

__device__ inline void write_sum(const QuantizedArgs& args, const QuantizedPart& part, int row, int token, float sum) {
  if (row >= part.rows || token >= args.num_tokens) return;
  float& out = args.out[token * args.out_stride + part.first_column + row];
  out = args.accumulate ? out + sum : sum;
}

// --- Few tokens: the weights are streamed once ----------------------------------------------------------------------

constexpr int kStreamWarps = 8;  ///< warps of a thread block, which share the batches of a panel

/// Thread blocks per multiprocessor. The bound permits the compiler to use more registers, so that it does not delay
/// loads.
constexpr int resident_blocks(Grouping grouping) {
  return grouping == Grouping::by_fours ? 3 : 2;
}

/// Steps of a batch: as many as fit into the registers.
template <Coding coding>
constexpr int stream_steps(Grouping grouping, bool two_level_scales) {
  return kBitsOf<coding> > 4 || (two_level_scales && grouping == Grouping::by_halves) ? 4 : 8;
}

// Block b computes one panel of its part for all tokens.
template <Coding coding, Grouping kGrouping, bool kAsymmetric, bool kTwoLevel, int kTiles>
__global__ __launch_bounds__(kStreamWarps * 32, resident_blocks(kGrouping)) void stream_panels_kernel(
    const __grid_constant__ QuantizedArgs args) {
  using Shape = BatchShape<coding, kGrouping, stream_steps<coding>(kGrouping, kTwoLevel), kAsymmetric, kTwoLevel>;
  constexpr int kEight = static_cast<int>(kTokenTile);
  constexpr int kTokens = kTiles * kEight;
  __shared__ float partial[kStreamWarps][kTokens][kPanelRows];
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const int g = lane / 4;
  const int t = lane % 4;
  const QuantizedPart& part = args.parts[part_of_block(args, static_cast<int>(blockIdx.x))];
  const int panel = static_cast<int>(blockIdx.x) - part.first_block;
  const PanelMemory memory = panel_of<Shape>(args, part, panel);
  const std::int8_t* x[kTiles];
#pragma unroll
  for (int n = 0; n < kTiles; ++n) {
    // A tile with fewer tokens repeats the last token; the results of the copies are dropped.
    x[n] = args.x + std::int64_t{min(n * kEight + g, args.num_tokens - 1)} * args.x_columns + 8 * t;
  }

  float sums[kTiles][4] = {};
  const auto load = [&](int first) { return load_panel<Shape>(memory, first, args.padded_columns, args.groups, lane); };
  PanelBatch<Shape> next = load(warp * Shape::kColumns);
  wait_for_stream();  // the first weights are already being loaded
  for (int first = warp * Shape::kColumns; first < args.padded_columns; first += kStreamWarps * Shape::kColumns) {
    const PanelBatch<Shape> batch = next;
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
    add_batch<Shape, kTiles>(batch, first, args.groups, args.table, lane, load_x, load_x_scales, load_x_sums, sums);
  }
#pragma unroll
  for (int n = 0; n < kTiles; ++n) {
#pragma unroll
    for (int i = 0; i < 4; ++i) partial[warp][n * kEight + 2 * t + i % 2][2 * g + i / 2] = sums[n][i];
  }
  __syncthreads();
  const int token = static_cast<int>(threadIdx.x) / kPanelRows;
  const int row = static_cast<int>(threadIdx.x) % kPanelRows;
  if (token >= kTokens) return;
  float sum = partial[0][token][row];
#pragma unroll
  for (int w = 1; w < kStreamWarps; ++w) sum += partial[w][token][row];
  const int output = panel * kPanelRows + row;
  write_sum(args, part, output, token, sum + bias_of(args, part, output));
}

// --- Many tokens: tiles ---------------------------------------------------------------------------------------------

constexpr int kTileSteps = 4;
constexpr int kTileColumns = kTileSteps * kStepColumns;
constexpr int kTileRowWarps = 4;
constexpr int kTileTokenWarps = 2;
constexpr int kTileThreads = kTileRowWarps * kTileTokenWarps * 32;
constexpr int kWarpTiles = 8;
/// Panels of a warp. Small groups, and integers in two words, need more registers and have fewer panels.
template <Coding coding>
constexpr int panels_of_warp(Grouping grouping, bool asymmetric) {
  if (grouping == Grouping::by_fours) return 2;
  return grouping == Grouping::by_halves || asymmetric || kHighBits<coding> > 0 ? 1 : 2;
}
constexpr int kTileTokens = kTileTokenWarps * kWarpTiles * static_cast<int>(kTokenTile);
/// Bytes from one token to the next in shared memory, chosen so that the rows of eight lanes begin in different banks.
constexpr int kSharedStride = kTileColumns + 32;

/// Starts to copy columns [first_column, first_column + kTileColumns) of the thread block's tokens to shared memory;
/// writes zeros after the last token and column.
__device__ inline void stage_x(const QuantizedArgs& args, int first_token, int first_column, std::int8_t* to) {
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

// Block (m, b) computes 8 (or 4) panels of a part for 128 tokens. Warps: 4 by 2, each 2 (or 1) panels by 64 tokens.
template <Coding coding, Grouping kGrouping, bool kAsymmetric, bool kTwoLevel>
__global__ __launch_bounds__(kTileThreads, 1) void multiply_tiles_kernel(const __grid_constant__ QuantizedArgs args) {
  using Shape = BatchShape<coding, kGrouping, kTileSteps, kAsymmetric, kTwoLevel>;
  __shared__ __align__(16) std::int8_t staged[2][kTileTokens * kSharedStride];
  constexpr int kWarpPanels = panels_of_warp<coding>(kGrouping, kAsymmetric);
  constexpr int kEight = static_cast<int>(kTokenTile);
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
    // A thread block with fewer panels repeats the last panel; the results of the copies are dropped.
    memory[p] = panel_of<Shape>(args, part, min(first_panel + p, part.panels - 1));
  }
  const auto load = [&](int p, int first) {
    return load_panel<Shape>(memory[p], first, args.padded_columns, args.groups, lane);
  };
  const auto load_pair = [&](const float* of, int n, int group) {
    const int token = min(first_token + n * kEight, args.tokens - kEight) + 2 * t;
    return *reinterpret_cast<const float2*>(of + std::int64_t{group} * args.tokens + token);
  };
  const auto load_x_scales = [&](int n, int group) { return load_pair(args.x_scales, n, group); };
  const auto load_x_sums = [&](int n, int group) { return load_pair(args.x_sums, n, group); };

  float sums[kWarpPanels][kWarpTiles][4] = {};
  PanelBatch<Shape> batch[kWarpPanels];
#pragma unroll
  for (int p = 0; p < kWarpPanels; ++p) batch[p] = load(p, 0);
  stage_x(args, block_token, 0, staged[0]);
  int stage = 0;
  for (int first = 0; first < args.padded_columns; first += kTileColumns, stage ^= 1) {
    copy_async_wait<0>();
    __syncthreads();  // this batch is loaded, and no thread still reads the previous one
    if (first + kTileColumns < args.padded_columns) {
      stage_x(args, block_token, first + kTileColumns, staged[stage ^ 1]);
    }
    const std::int8_t* x = staged[stage] + (warp_token + g) * kSharedStride + 8 * t;
    const auto load_x = [&](int n, int s) {
      return *reinterpret_cast<const uint2*>(x + n * kEight * kSharedStride + s * kStepColumns);
    };
#pragma unroll
    for (int p = 0; p < kWarpPanels; ++p) {
      add_batch<Shape, kWarpTiles>(batch[p], first, args.groups, args.table, lane, load_x, load_x_scales, load_x_sums,
                                   sums[p]);
      batch[p] = load(p, first + kTileColumns);  // loads until the next iteration
    }
  }
#pragma unroll
  for (int p = 0; p < kWarpPanels; ++p) {
    if (first_panel + p >= part.panels) break;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int row = (first_panel + p) * kPanelRows + 2 * g + half;
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

/// Returns the arguments for thread blocks of `panels_per_block` panels.
inline QuantizedArgs args_for(const QuantizedProduct& product, int panels_per_block) {
  const QuantizedLinearParams& p = product.params;
  const QuantizedX& shape = product.x;
  const QuantizedMatrix& front = p.weights.front();
  QuantizedArgs args;
  args.x = static_cast<const std::int8_t*>(product.x_data);
  args.x_scales = reinterpret_cast<const float*>(args.x + shape.tokens * shape.columns);
  if (shape.with_sums) args.x_sums = args.x_scales + shape.tokens * shape.groups;
  args.out = p.out + product.first * p.out_stride;
  args.out_stride = p.out_stride;
  args.num_tokens = static_cast<int>(product.count);
  args.tokens = static_cast<int>(shape.tokens);
  args.x_columns = static_cast<int>(shape.columns);
  args.padded_columns = static_cast<int>(front.padded_columns());
  args.groups = groups_of(front.format.group_size, shape.groups);
  args.num_parts = static_cast<int>(p.weights.size());
  args.bias_dtype = p.bias_dtype;
  args.accumulate = p.accumulate;
  args.table = words_of(front.format.codebook);
  int column = 0;
  for (std::size_t i = 0; i < p.weights.size(); ++i) {
    const QuantizedMatrix& w = p.weights[i];
    args.parts[i] = {w.data,
                     reinterpret_cast<const __half*>(w.scales),
                     reinterpret_cast<const __half*>(w.mins),
                     w.factors,
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

template <Coding coding, Grouping kGrouping, bool kAsymmetric, bool kTwoLevel>
Status multiply(cudaStream_t stream, const QuantizedProduct& product) {
  // The kernel is chosen for all tokens of an op together, so that all are summed up in one way.
  const std::int64_t tokens = product.params.num_tokens;
  if (tokens <= kMaxStreamedRows) {
    const QuantizedArgs args = args_for(product, 1);
    const dim3 grid(static_cast<unsigned>(args.num_blocks));
    const auto kernel = tokens <= kTokenTile ? stream_panels_kernel<coding, kGrouping, kAsymmetric, kTwoLevel, 1>
                                             : stream_panels_kernel<coding, kGrouping, kAsymmetric, kTwoLevel, 2>;
    return launch(Start::early, "stream_panels", kernel, grid, dim3(kStreamWarps * 32), 0, stream, args);
  }
  const QuantizedArgs args = args_for(product, kTileRowWarps * panels_of_warp<coding>(kGrouping, kAsymmetric));
  const dim3 grid(static_cast<unsigned>(ceil_divide<std::int64_t>(product.count, kTileTokens)),
                  static_cast<unsigned>(args.num_blocks));
  return launch("multiply_tiles", multiply_tiles_kernel<coding, kGrouping, kAsymmetric, kTwoLevel>, grid,
                dim3(kTileThreads), 0, stream, args);
}

template <Coding coding, bool kAsymmetric, bool kTwoLevel>
Status multiply_grouped(cudaStream_t stream, const QuantizedProduct& product) {
  const Grouping grouping = grouping_of(product.params.weights.front().format.group_size);
  // Groups of 128 columns have their own kernels for the formats that often use them.
  if constexpr (!kTwoLevel && (coding == Coding::int4 || coding == Coding::int8)) {
    if (grouping == Grouping::by_fours)
      return multiply<coding, Grouping::by_fours, kAsymmetric, false>(stream, product);
  }
  if constexpr (kBlockColumns<coding> < kStepColumns) {
    if (grouping == Grouping::by_halves) {
      return multiply<coding, Grouping::by_halves, kAsymmetric, kTwoLevel>(stream, product);
    }
  }
  return multiply<coding, Grouping::by_steps, kAsymmetric, kTwoLevel>(stream, product);
}

template <Coding coding, bool kAsymmetric>
Status multiply_leveled(cudaStream_t stream, const QuantizedProduct& product) {
  if constexpr (kMayBeTwoLevel<coding>) {
    if (product.params.weights.front().format.two_level_scales) {
      return multiply_grouped<coding, kAsymmetric, true>(stream, product);
    }
  }
  return multiply_grouped<coding, kAsymmetric, false>(stream, product);
}

/// Enqueues the product with weights whose integers are stored as `coding`.
template <Coding coding>
Status multiply_coded(cudaStream_t stream, const QuantizedProduct& product) {
  if constexpr (coding != Coding::codebook) {
    if (product.params.weights.front().format.asymmetric) return multiply_leveled<coding, true>(stream, product);
  }
  return multiply_leveled<coding, false>(stream, product);
}

}  // namespace pagoda::kernels::cuda

#include <algorithm>
#include <cstdint>

#include "kernels/cuda/element.cuh"
#include "kernels/cuda/float8.cuh"
#include "kernels/cuda/launch.hpp"
#include "kernels/cuda/skinny_linear.hpp"
#include "kernels/cuda/warp_sums.cuh"

namespace pagoda::kernels::cuda {
namespace {

constexpr int kWarps = 4;  ///< warps of a thread block; all compute the same outputs, each for a part of the columns

/// Whether weights of type T are multiplied with scales.
template <class T>
constexpr bool kHasScales = std::is_same_v<T, __nv_fp8_e4m3>;

/// Four words of weights: 16 weights of 8 bits, 8 of 16 bits or 4 of 32 bits.
struct Chunk {
  std::uint32_t words[4];
};

/// Loads 16 bytes of a row of `in` elements, from element k on; 0 beyond the row's end.
template <class T, bool kVectors>
__device__ Chunk load_weights(const T* row, int k, int in) {
  Chunk chunk = {};
  if constexpr (kVectors) {
    const uint4 loaded = load_once(reinterpret_cast<const uint4*>(row + k), k < in);
    chunk = {{loaded.x, loaded.y, loaded.z, loaded.w}};
  } else {
    constexpr int kPerWord = 4 / static_cast<int>(sizeof(T));
#pragma unroll
    for (int i = 0; i < 4 * kPerWord; ++i) {
      if (k + i < in) chunk.words[i / kPerWord] |= bits_of(row[k + i]) << (i % kPerWord * (32 / kPerWord));
    }
  }
  return chunk;
}

/// Returns x[k .. k + 3]; 0 beyond the end of the row.
template <bool kVectors, class X>
__device__ float4 load_x(const X* row, int k, int in) {
  float4 x = {0.0F, 0.0F, 0.0F, 0.0F};
  if constexpr (!kVectors) {
    if (k < in) x.x = to_float(row[k]);
    if (k + 1 < in) x.y = to_float(row[k + 1]);
    if (k + 2 < in) x.z = to_float(row[k + 2]);
    if (k + 3 < in) x.w = to_float(row[k + 3]);
  } else if (k < in) {
    if constexpr (sizeof(X) == 4) {
      x = *reinterpret_cast<const float4*>(row + k);
    } else {
      const uint2 words = *reinterpret_cast<const uint2*>(row + k);
      const float2 low = two_floats<X>(words.x);
      const float2 high = two_floats<X>(words.y);
      x = {low.x, low.y, high.x, high.y};
    }
  }
  return x;
}

/// Returns elements 4 `quarter` to 4 `quarter` + 3 of a chunk.
template <class T>
__device__ float4 four_weights(const Chunk& chunk, int quarter) {
  if constexpr (sizeof(T) == 4) {
    return {__uint_as_float(chunk.words[0]), __uint_as_float(chunk.words[1]), __uint_as_float(chunk.words[2]),
            __uint_as_float(chunk.words[3])};
  } else if constexpr (sizeof(T) == 2) {
    const float2 a = two_floats<T>(quarter == 1 ? chunk.words[2] : chunk.words[0]);
    const float2 b = two_floats<T>(quarter == 1 ? chunk.words[3] : chunk.words[1]);
    return {a.x, a.y, b.x, b.y};
  } else {
    const std::uint32_t even = quarter >= 2 ? chunk.words[2] : chunk.words[0];
    const std::uint32_t odd = quarter >= 2 ? chunk.words[3] : chunk.words[1];
    return floats_of_e4m3(quarter % 2 == 0 ? even : odd);
  }
}

/// Returns the index of the four elements of a lane's chunk that are multiplied at turn `turn`: lanes whose chunks
/// begin in the same banks use different orders, so that eight lanes together read x from all banks.
template <int kPerChunk>
__device__ int quarter_of(int lane, int turn) {
  if constexpr (kPerChunk == 4) return 0;
  if constexpr (kPerChunk == 8) return (lane >> 2 & 1) ^ turn;
  return (lane >> 1 & 3) ^ turn;
}

__device__ float add_products(float4 a, float4 b, float sum) {
  sum = fmaf(a.x, b.x, sum);
  sum = fmaf(a.y, b.y, sum);
  sum = fmaf(a.z, b.z, sum);
  return fmaf(a.w, b.w, sum);
}

/// Adds the columns of one lane to sums[output][token]: the warps take turns at steps of 32 chunks. The weights of a
/// step are loaded while those of the previous step are multiplied.
template <class T, class X, int kTokens, bool kVectors>
__device__ void add_columns(const SkinnyArgs& args, const T* const (&weights)[kSkinnyOutputs],
                            const float* const (&scales)[kSkinnyOutputs], const X* const (&x)[kTokens],
                            float (&sums)[kSkinnyOutputs * kTokens]) {
  constexpr int kPerChunk = 16 / static_cast<int>(sizeof(T));
  constexpr int kStep = 32 * kPerChunk;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int warp = static_cast<int>(threadIdx.x) / 32;
  Chunk next[kSkinnyOutputs];
#pragma unroll
  for (int o = 0; o < kSkinnyOutputs; ++o) {
    next[o] = load_weights<T, kVectors>(weights[o], warp * kStep + lane * kPerChunk, args.in);
  }
  wait_for_stream();  // the first weights are already being loaded
  for (int first = warp * kStep; first < args.in; first += kWarps * kStep) {
    const int k = first + lane * kPerChunk;
    Chunk chunks[kSkinnyOutputs];
#pragma unroll
    for (int o = 0; o < kSkinnyOutputs; ++o) {
      chunks[o] = next[o];
      next[o] = load_weights<T, kVectors>(weights[o], k + kWarps * kStep, args.in);
    }
    float scale[kSkinnyOutputs];
    if constexpr (kHasScales<T>) {
      const int place = min(k, args.in - 1) >> args.scale_shift;
#pragma unroll
      for (int o = 0; o < kSkinnyOutputs; ++o) scale[o] = scales[o][place];
    }
#pragma unroll
    for (int turn = 0; turn < kPerChunk / 4; ++turn) {
      const int quarter = quarter_of<kPerChunk>(lane, turn);
      float4 w[kSkinnyOutputs];
#pragma unroll
      for (int o = 0; o < kSkinnyOutputs; ++o) {
        w[o] = four_weights<T>(chunks[o], quarter);
        if constexpr (kHasScales<T>) {
          w[o] = {w[o].x * scale[o], w[o].y * scale[o], w[o].z * scale[o], w[o].w * scale[o]};
        }
      }
#pragma unroll
      for (int t = 0; t < kTokens; ++t) {
        const float4 values = load_x<kVectors>(x[t], k + 4 * quarter, args.in);
#pragma unroll
        for (int o = 0; o < kSkinnyOutputs; ++o) {
          float& sum = sums[o * kTokens + t];
          sum = add_products(w[o], values, sum);
        }
      }
    }
  }
}

/// Thread blocks per multiprocessor. The bound permits the compiler to use more registers; without it, the compiler
/// saves registers by loading weights one after the other. Kernels with scales need a few more.
template <class T>
constexpr int resident_blocks(int tokens) {
  if (tokens == 1) return 8;
  if (kHasScales<T>) return tokens == 2 ? 4 : tokens == 4 ? 3 : 2;
  return tokens == 2 ? 6 : tokens == 4 ? 4 : 3;
}

/// Multiplies x [num_tokens, in] with parts [rows, in] into out [num_tokens, out_stride]. Block (b, g): kSkinnyOutputs
/// outputs of its part, tokens from g * kTokens on.
template <class T, class X, int kTokens, bool kVectors>
__device__ __forceinline__ void multiply_block(const SkinnyArgs& args) {
  constexpr int kSums = kSkinnyOutputs * kTokens;
  __shared__ float partial[kWarps][kSums];
  const int block = static_cast<int>(blockIdx.x);
  int index = 0;
  while (index + 1 < args.num_parts && block >= args.parts[index + 1].first_block) ++index;
  const SkinnyPart part = args.parts[index];
  const int first_output = (block - part.first_block) * kSkinnyOutputs;
  const int first_token = static_cast<int>(blockIdx.y) * kTokens;

  // Outputs and tokens after the last one are copies of the last one; their results are dropped.
  const T* weights[kSkinnyOutputs];
  const float* scales[kSkinnyOutputs] = {};
#pragma unroll
  for (int o = 0; o < kSkinnyOutputs; ++o) {
    const int row = min(first_output + o, part.rows - 1);
    weights[o] = static_cast<const T*>(part.weight) + std::int64_t{row} * args.in;
    if constexpr (kHasScales<T>) {
      scales[o] = part.scales + std::int64_t{row / part.scale_rows} * args.scales_of_row;
    }
  }
  const X* x[kTokens];
#pragma unroll
  for (int t = 0; t < kTokens; ++t) {
    const std::int64_t token = min(first_token + t, args.num_tokens - 1);
    x[t] = static_cast<const X*>(args.x) + token * args.in;
  }
  float sums[kSums] = {};
  add_columns<T, X, kTokens, kVectors>(args, weights, scales, x, sums);

  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const int first_sum = sum_over_warp(sums, lane);
  constexpr int kLaneSums = kSums > 32 ? kSums / 32 : 1;
#pragma unroll
  for (int i = 0; i < kLaneSums; ++i) partial[warp][first_sum + i] = sums[i];
  __syncthreads();

  const int i = static_cast<int>(threadIdx.x);
  if (i >= kSums) return;
  float sum = partial[0][i];
#pragma unroll
  for (int w = 1; w < kWarps; ++w) sum += partial[w][i];
  const int output = first_output + i / kTokens;
  const int token = first_token + i % kTokens;
  if (output >= part.rows || token >= args.num_tokens) return;
  if (part.bias != nullptr) sum += load_element(part.bias, args.bias_dtype, output);
  float& out = args.out[token * args.out_stride + part.first_column + output];
  out = args.accumulate ? out + sum : sum;
}

template <class T, class X, int kTokens, bool kVectors>
__global__ __launch_bounds__(kWarps * 32, resident_blocks<T>(kTokens)) void skinny_linear_kernel(
    const __grid_constant__ SkinnyArgs args) {
  multiply_block<T, X, kTokens, kVectors>(args);
}

template <int kTokens, bool kVectors>
__global__ __launch_bounds__(kWarps * 32, resident_blocks<__nv_fp8_e4m3>(kTokens)) void skinny_float8_kernel(
    const __grid_constant__ SkinnyArgs args) {
  multiply_block<__nv_fp8_e4m3, float, kTokens, kVectors>(args);
}

template <class T, class X, int kTokens, bool kVectors>
Status launch_kernel(cudaStream_t stream, const SkinnyArgs& args) {
  const auto groups = static_cast<unsigned>((args.num_tokens + kTokens - 1) / kTokens);
  const dim3 grid(static_cast<unsigned>(args.num_blocks), groups);
  if constexpr (kHasScales<T>) {
    return launch(Start::early, "skinny_float8", skinny_float8_kernel<kTokens, kVectors>, grid, dim3(kWarps * 32), 0,
                  stream, args);
  } else {
    return launch(Start::early, "skinny_linear", skinny_linear_kernel<T, X, kTokens, kVectors>, grid, dim3(kWarps * 32),
                  0, stream, args);
  }
}

template <class T, class X>
Status launch_for_tokens(cudaStream_t stream, const SkinnyArgs& args, bool in_vectors) {
  if (in_vectors) {
    if (args.num_tokens == 1) return launch_kernel<T, X, 1, true>(stream, args);
    if (args.num_tokens == 2) return launch_kernel<T, X, 2, true>(stream, args);
    if (args.num_tokens <= 4) return launch_kernel<T, X, 4, true>(stream, args);
    return launch_kernel<T, X, 8, true>(stream, args);
  }
  return args.num_tokens <= 2 ? launch_kernel<T, X, 2, false>(stream, args)
                              : launch_kernel<T, X, 8, false>(stream, args);
}

}  // namespace

SkinnyArgs skinny_args(const LinearParams& p) {
  SkinnyArgs args{.x = p.narrow_x ? p.narrow_x.data : p.x,
                  .narrow_x = static_cast<bool>(p.narrow_x),
                  .out = p.out,
                  .out_stride = p.out_stride,
                  .in = static_cast<std::int32_t>(p.in),
                  .num_tokens = static_cast<std::int32_t>(p.num_tokens),
                  .num_parts = static_cast<std::int32_t>(p.weights.size()),
                  .num_blocks = 0,
                  .bias_dtype = p.bias_dtype,
                  .accumulate = p.accumulate,
                  .parts = {}};
  if (const WeightMatrix& front = p.weights.front(); front.scales != nullptr) {
    args.scale_shift = scale_shift(front.scale_columns, p.in);
    args.scales_of_row = static_cast<std::int32_t>(front.scales_of_row());
  }
  std::int32_t column = 0;
  for (std::size_t i = 0; i < p.weights.size(); ++i) {
    const auto rows = static_cast<std::int32_t>(p.weights[i].rows);
    args.parts[i] = {.weight = p.weights[i].data,
                     .bias = p.biases.empty() ? nullptr : p.biases[i],
                     .rows = rows,
                     .first_block = args.num_blocks,
                     .first_column = column,
                     .scales = p.weights[i].scales,
                     // A part has no more rows than an int32_t counts; larger scale_rows mean one scale block for the
                     // whole matrix.
                     .scale_rows = static_cast<std::int32_t>(std::min(p.weights[i].scale_rows, p.weights[i].rows))};
    args.num_blocks += (rows + kSkinnyOutputs - 1) / kSkinnyOutputs;
    column += rows;
  }
  return args;
}

bool reads_in_vectors(const LinearParams& p) {
  const auto in_vectors = [&](const WeightMatrix& w) {
    return all_aligned_16(w.data, p.in * static_cast<std::int64_t>(size_of(w.dtype)));
  };
  return all_aligned_16(p.narrow_x ? p.narrow_x.data : static_cast<const void*>(p.x)) &&
         std::all_of(p.weights.begin(), p.weights.end(), in_vectors);
}

Status skinny_linear(cudaStream_t stream, const LinearParams& p) {
  if (p.num_tokens == 0) return {};
  const SkinnyArgs args = skinny_args(p);
  const bool in_vectors = reads_in_vectors(p);
  if (p.weights.front().scales != nullptr) return launch_for_tokens<__nv_fp8_e4m3, float>(stream, args, in_vectors);
  return with_element(p.weights.front().dtype, [&](auto element) {
    using T = decltype(element);
    return args.narrow_x ? launch_for_tokens<T, T>(stream, args, in_vectors)
                         : launch_for_tokens<T, float>(stream, args, in_vectors);
  });
}

}  // namespace pagoda::kernels::cuda

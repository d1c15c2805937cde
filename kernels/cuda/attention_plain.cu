#include <cstdint>
#include <string>
#include <type_traits>

#include <cuda_fp8.h>

#include "kernels/cuda/attention_args.cuh"
#include "kernels/cuda/attention_kernels.hpp"
#include "kernels/cuda/attention_merge.cuh"
#include "kernels/cuda/launch.hpp"

namespace pagoda::kernels::cuda {
namespace {

constexpr int kPlainThreads = 128;
constexpr int kPlainWarps = kPlainThreads / kWarpSize;
constexpr int kRowsOfWarp = kNarrowRows / kPlainWarps;  ///< warp w scores rows w, w + kPlainWarps, ...
constexpr int kRowsAtOnce = 4;                          ///< rows whose values a thread sums together
static_assert(kPlainTile == kWarpSize, "each lane scores one position");

/// Shared memory of a thread block; see plain_shared_bytes.
struct PlainMemory {
  std::int64_t* offsets;    ///< [kPlainTile]: place_key()
  float* key_scales;        ///< [kPlainTile]; with int8
  float* value_scales;      ///< [kPlainTile]; with int8
  float* queries;           ///< [rows, head_dim]
  float* sums;              ///< [rows, head_dim]
  float* keys;              ///< [kPlainTile, kPlainDimChunk + 1]
  float* scores;            ///< [rows, kPlainTile]
  SoftmaxState* states;     ///< [rows]
  std::int32_t* positions;  ///< [rows]
  float* slopes;            ///< [rows]

  __device__ PlainMemory(std::byte* memory, std::int32_t rows, std::int32_t head_dim) {
    offsets = reinterpret_cast<std::int64_t*>(memory);
    key_scales = reinterpret_cast<float*>(offsets + kPlainTile);
    value_scales = key_scales + kPlainTile;
    states = reinterpret_cast<SoftmaxState*>(value_scales + kPlainTile);
    positions = reinterpret_cast<std::int32_t*>(states + rows);
    slopes = reinterpret_cast<float*>(positions + rows);
    queries = slopes + rows;
    sums = queries + rows * head_dim;
    keys = sums + rows * head_dim;
    scores = keys + kPlainTile * (kPlainDimChunk + 1);
  }
};

/// Returns an element of the cache as float; int8 without its scale.
template <class T>
__device__ float load_element(T value) {
  if constexpr (std::is_same_v<T, __nv_fp8_e4m3> || std::is_same_v<T, std::int8_t>) {
    return static_cast<float>(value);
  } else {
    return to_float(value);
  }
}

/// Computes one tile of at most kNarrowRows packed rows entirely in float32.
template <class T>
class PlainAttention {
 public:
  __device__ PlainAttention(const AttentionArgs& args, const RowTile& tile, const PlainMemory& memory)
      : args_(args),
        tile_(tile),
        memory_(memory),
        thread_(static_cast<int>(threadIdx.x)),
        lane_(thread_ % kWarpSize),
        warp_(thread_ / kWarpSize) {}

  __device__ void load_queries() {
    for (int r = 0; r < tile_.num_packed; ++r) {
      const PackedRow packed = packed_row(args_, tile_, r);
      const float* query = query_of(args_, tile_, packed);
      for (int d = thread_; d < args_.head_dim; d += kPlainThreads) {
        memory_.queries[r * args_.head_dim + d] = query[d];
      }
      if (thread_ == 0) {
        memory_.positions[r] = tile_.position(packed.row);
        memory_.slopes[r] = args_.alibi_slopes != nullptr ? args_.alibi_slopes[packed.head] : 0.0F;
      }
    }
  }

  /// Computes the positions [first, end), which are part `part` of `parts`. Writes the results to scratch, or to `out`
  /// if there is only one part.
  __device__ void run(std::int32_t first, std::int32_t end, std::int32_t part, std::int32_t parts) {
    begin();
    for (std::int32_t t = first / kPlainTile; t * kPlainTile < end; ++t) attend_tile(t * kPlainTile);
    write(part, parts);
  }

 private:
  static constexpr bool kScaled = std::is_same_v<T, std::int8_t>;

  __device__ void begin() {
    __syncthreads();  // the data that is overwritten has been read
    for (int i = thread_; i < tile_.num_packed * args_.head_dim; i += kPlainThreads) memory_.sums[i] = 0.0F;
    for (int r = thread_; r < tile_.num_packed; r += kPlainThreads) memory_.states[r] = {minus_infinity(), 0.0F};
  }

  __device__ void attend_tile(std::int32_t first_token) {
    __syncthreads();
    if (thread_ < kPlainTile) {
      const std::int32_t token = first_token + thread_;
      const std::int64_t place = place_key(args_, tile_, token, *block_of(args_, tile_, token), sizeof(T));
      memory_.offsets[thread_] = place;
      if constexpr (kScaled) {
        const bool seen = place >= 0;
        const auto* scale =
            reinterpret_cast<const float*>(args_.cache + (seen ? place_scale(args_, tile_, token, place) : 0));
        memory_.key_scales[thread_] = seen ? *scale : 0.0F;
        memory_.value_scales[thread_] = seen ? *(scale + args_.value_offset / sizeof(float)) : 0.0F;
      }
    }
    float dots[kRowsOfWarp] = {};
    for (int column = 0; column < args_.head_dim; column += kPlainDimChunk) {
      __syncthreads();
      load_keys(column);
      __syncthreads();
      multiply_keys(column, dots);
    }
#pragma unroll
    for (int i = 0; i < kRowsOfWarp; ++i) {
      const int r = warp_ + i * kPlainWarps;
      if (r < tile_.num_packed) softmax(r, score(r, first_token + lane_, dots[i]));
    }
    __syncthreads();
    add_values();
  }

  __device__ const T* row_of(int token) const {
    return reinterpret_cast<const T*>(args_.cache + memory_.offsets[token]);
  }
  __device__ const T* value_row_of(int token) const {
    return reinterpret_cast<const T*>(args_.cache + memory_.offsets[token] + args_.value_offset);
  }

  /// Loads columns from `column` on of the tile's keys; writes zeros for positions that the tile does not see.
  __device__ void load_keys(int column) {
    for (int i = thread_; i < kPlainTile * kPlainDimChunk; i += kPlainThreads) {
      const int token = i / kPlainDimChunk;
      const int in_chunk = i % kPlainDimChunk;
      const bool exists = memory_.offsets[token] >= 0 && column + in_chunk < args_.head_dim;
      memory_.keys[token * (kPlainDimChunk + 1) + in_chunk] =
          exists ? load_element(row_of(token)[column + in_chunk]) : 0.0F;
    }
  }

  __device__ void multiply_keys(int column, float (&dots)[kRowsOfWarp]) {
    const int count = min(kPlainDimChunk, args_.head_dim - column);
    const float* key = memory_.keys + lane_ * (kPlainDimChunk + 1);
#pragma unroll
    for (int i = 0; i < kRowsOfWarp; ++i) {
      const int r = warp_ + i * kPlainWarps;
      if (r >= tile_.num_packed) continue;
      const float* query = memory_.queries + r * args_.head_dim + column;
      float dot = dots[i];
      for (int c = 0; c < count; ++c) dot = __fmaf_rn(query[c], key[c], dot);
      dots[i] = dot;
    }
  }

  __device__ float score(int r, std::int32_t token, float dot) const {
    const std::int32_t position = memory_.positions[r];
    if constexpr (kScaled) dot = __fmul_rn(dot, memory_.key_scales[lane_]);
    if (!sees(args_, position, token)) return minus_infinity();
    return args_.plain_scores ? __fmul_rn(dot, args_.power_factor)
                              : shaped_score(args_, dot, memory_.slopes[r], token - position);
  }

  /// Replaces a warp's scores of one row by powers relative to the highest score so far; rescales the sums to that
  /// score.
  __device__ void softmax(int r, float score) {
    const SoftmaxState state = memory_.states[r];
    const float highest = fmaxf(state.highest, warp_max(score));
    const float base = finite_highest(highest);
    const float factor = fast_exp2(__fsub_rn(state.highest, base));
    const float power = fast_exp2(__fsub_rn(score, base));
    memory_.scores[r * kPlainTile + lane_] = kScaled ? __fmul_rn(power, memory_.value_scales[lane_]) : power;
    const float total = __fadd_rn(__fmul_rn(state.total, factor), warp_sum(power));
    __syncwarp();  // all lanes have read the state
    if (lane_ == 0) memory_.states[r] = {highest, total};
    if (highest == state.highest) return;
    float* sums = memory_.sums + r * args_.head_dim;
    for (int d = lane_; d < args_.head_dim; d += kWarpSize) sums[d] = __fmul_rn(sums[d], factor);
  }

  __device__ void add_values() {
    for (int d = thread_; d < args_.head_dim; d += kPlainThreads) {
      for (int first = 0; first < tile_.num_packed; first += kRowsAtOnce) {
        float sums[kRowsAtOnce];
#pragma unroll
        for (int i = 0; i < kRowsAtOnce; ++i) {
          sums[i] = first + i < tile_.num_packed ? memory_.sums[(first + i) * args_.head_dim + d] : 0.0F;
        }
        for (int token = 0; token < kPlainTile; ++token) {
          if (memory_.offsets[token] < 0) continue;
          const float value = load_element(value_row_of(token)[d]);
#pragma unroll
          for (int i = 0; i < kRowsAtOnce; ++i) {
            if (first + i >= tile_.num_packed) continue;
            sums[i] = __fmaf_rn(memory_.scores[(first + i) * kPlainTile + token], value, sums[i]);
          }
        }
#pragma unroll
        for (int i = 0; i < kRowsAtOnce; ++i) {
          if (first + i < tile_.num_packed) memory_.sums[(first + i) * args_.head_dim + d] = sums[i];
        }
      }
    }
  }

  __device__ void write(std::int32_t part, std::int32_t parts) const {
    __syncthreads();
    for (int r = 0; r < tile_.num_packed; ++r) {
      const PackedRow packed = packed_row(args_, tile_, r);
      const float* sums = memory_.sums + r * args_.head_dim;
      const SoftmaxState state = memory_.states[r];
      OutRow to = out_of(args_, tile_, packed);
      float factor = 1.0F;
      if (parts > 1) {
        const std::int64_t index = partial_index(args_, tile_, packed, part);
        if (thread_ == 0) args_.partial_states[index] = {state.highest, state.total};
        to = partial_sums_at(args_, index);
      } else {
        factor = __fdividef(1.0F, state.total);
      }
      for (int d = thread_; d < args_.head_dim; d += kPlainThreads) to.store(d, __fmul_rn(sums[d], factor));
    }
  }

  const AttentionArgs& args_;
  const RowTile& tile_;
  const PlainMemory& memory_;
  const int thread_;
  const int lane_;
  const int warp_;
};

// Writes out [tokens, num_heads * head_dim], or partial results; see AttentionArgs. Grid: see split_row_tile,
// whole_row_tile.
template <class T>
__global__ void __launch_bounds__(kPlainThreads)
    attention_plain(const AttentionArgs args, const std::int32_t rows, const bool split) {
  PAGODA_DYNAMIC_SHARED(std::byte, shared);
  wait_for_stream();
  const RowTile tile = split ? split_row_tile(args, rows) : whole_row_tile(args, rows);
  if (tile.sequence < 0) return;
  const PlainMemory memory(shared, rows, args.head_dim);
  PlainAttention<T> attention(args, tile, memory);
  attention.load_queries();
  if (!split) return attention.run(tile.first_token, tile.end_token, 0, 1);

  const PartitionRange range = partitions_of(tile);
  const PartRun run = parts_of_block(args, range.count);
  for (std::int32_t part = run.first; part < run.end; ++part) {
    const TokenRange tokens = tokens_of(tile, range, part);
    attention.run(tokens.first, tokens.end, part, range.count);
  }
  if (run.first >= run.end || range.count == 1) return;
  __shared__ std::int32_t flag;
  if (last_to_finish(args.counters + tile.counter, run.end - run.first, range.count, &flag)) {
    merge_parts<1, kPlainThreads>(args, tile, range.count);
  }
}

template <class T>
Status launch_plain(cudaStream_t stream, const AttentionArgs& args, const AttentionLaunch& how) {
  const dim3 grid(static_cast<unsigned>(how.grid_x), static_cast<unsigned>(how.grid_y),
                  static_cast<unsigned>(how.grid_z));
  return launch(Start::early, "paged_attention (plain)", &attention_plain<T>, grid, dim3(kPlainThreads),
                plain_shared_bytes(args.head_dim, how.rows), stream, args, how.rows, how.split);
}

}  // namespace

Status launch_attention_plain(cudaStream_t stream, const AttentionArgs& args, const AttentionLaunch& how, DType dtype) {
  switch (dtype) {
    case DType::f32:
      return launch_plain<float>(stream, args, how);
    case DType::f16:
      return launch_plain<__half>(stream, args, how);
    case DType::bf16:
      return launch_plain<__nv_bfloat16>(stream, args, how);
    case DType::fp8_e4m3:
      return launch_plain<__nv_fp8_e4m3>(stream, args, how);
    case DType::int8:
      return launch_plain<std::int8_t>(stream, args, how);
  }
  return fail(ErrorCode::unsupported, "paged_attention: a KV cache of " + std::string(to_string(dtype)));
}

}  // namespace pagoda::kernels::cuda

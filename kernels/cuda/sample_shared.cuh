#pragma once

/// Shared code of the thread block that samples a row: shared memory, loops over a row, sums and scans over the block.

#include <cstdint>

#include "kernels/cuda/device_functions.cuh"

namespace pagoda::kernels::cuda {

constexpr int kSampleThreads = 1024;
constexpr int kSampleWarps = kSampleThreads / kWarpSize;
/// Maximum number of tokens of a row that can be candidates in shared memory.
constexpr int kMaxCandidates = 8192;
/// Maximum number of segments: contiguous parts of a row whose masses a draw adds up.
constexpr int kMaxSegments = 2048;

/// Digits of a radix selection: 8 bits at a time. Neighbouring lanes add to separate copies, because many logits share
/// the upper bits.
constexpr int kDigitBits = 8;
constexpr int kDigits = 1 << kDigitBits;
constexpr int kDigitCopies = 8;

struct SampleShared {
  float candidate_logits[kMaxCandidates];
  std::int32_t candidate_ids[kMaxCandidates];
  float thread_maxima[kSampleThreads];
  union {
    struct {
      std::uint32_t low[kDigits][kDigitCopies];
      std::uint32_t high[kDigits][kDigitCopies];
      std::uint64_t total[kDigits];
    } digits;
    struct {
      std::uint64_t mass[kMaxSegments];
      std::uint32_t ties[kMaxSegments];
    } segments;
  };
  std::uint64_t of_warp[kSampleWarps];
  std::uint32_t tile_counts[2][kSampleWarps];
  // Results that one thread found for all threads.
  std::uint64_t found_rest;
  std::uint32_t found_index;
  std::uint32_t found_ties;
};

/// The logits of a row, or of some of its tokens in ascending order of ids.
struct RowView {
  const float* logits = nullptr;
  const std::int32_t* ids = nullptr;  ///< ids of the tokens; null: every token
  int count = 0;

  __device__ std::int32_t id(int i) const { return ids == nullptr ? i : ids[i]; }
};

// --- Loops ----------------------------------------------------------------------------------------------------------
// A row is read in chunks of four logits that are aligned to 16 bytes: chunk c holds the logits from 4c - shift on.

__device__ inline int chunk_shift(const RowView& view) {
  return static_cast<int>(reinterpret_cast<std::uintptr_t>(view.logits) / sizeof(float) % 4);
}
__device__ inline int num_chunks(const RowView& view) {
  return (view.count + chunk_shift(view) + 3) / 4;
}

struct RowChunk {
  int first = 0;  ///< index of x[0]; may be outside of the row
  float x[4] = {};
};

__device__ inline RowChunk load_chunk(const RowView& view, int chunk) {
  RowChunk loaded;
  loaded.first = 4 * chunk - chunk_shift(view);
  if (loaded.first >= 0 && loaded.first + 4 <= view.count) {
    const float4 x = *reinterpret_cast<const float4*>(view.logits + loaded.first);
    loaded.x[0] = x.x;
    loaded.x[1] = x.y;
    loaded.x[2] = x.z;
    loaded.x[3] = x.w;
  } else {
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      const int i = loaded.first + j;
      if (i >= 0 && i < view.count) loaded.x[j] = view.logits[i];
    }
  }
  return loaded;
}

/// Calls f(i, logit) for each logit of the chunk that belongs to the row.
template <class F>
__device__ void for_chunk(const RowView& view, const RowChunk& chunk, const F& f) {
#pragma unroll
  for (int j = 0; j < 4; ++j) {
    const int i = chunk.first + j;
    if (i >= 0 && i < view.count) f(i, chunk.x[j]);
  }
}

/// Calls f(i, logit) once for each logit, on any thread; each thread's calls are in ascending order. f must not
/// synchronise with other threads.
template <class F>
__device__ void for_row(const RowView& view, const F& f) {
  constexpr int kUnroll = 2;
  const int chunks = num_chunks(view);
  for (int first = static_cast<int>(threadIdx.x); first < chunks; first += kUnroll * kSampleThreads) {
    RowChunk loaded[kUnroll];
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) {
      if (first + u * kSampleThreads < chunks) loaded[u] = load_chunk(view, first + u * kSampleThreads);
    }
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) {
      if (first + u * kSampleThreads < chunks) for_chunk(view, loaded[u], f);
    }
  }
}

// --- Over a warp or the block ---------------------------------------------------------------------------------------
// All threads must call these functions.

__device__ inline int lane_of_thread() {
  return static_cast<int>(threadIdx.x) % kWarpSize;
}
__device__ inline int warp_of_thread() {
  return static_cast<int>(threadIdx.x) / kWarpSize;
}

struct Add {
  template <class T>
  __device__ T operator()(T a, T b) const {
    return a + b;
  }
};
struct Larger {
  template <class T>
  __device__ T operator()(T a, T b) const {
    return a < b ? b : a;
  }
};

/// Combines integers, so the order does not matter.
template <class Combine>
__device__ inline std::uint64_t combine_over_block(SampleShared& shared, std::uint64_t value) {
  value = warp_reduce<Combine>(value);
  __syncthreads();  // the last values of of_warp have been read
  if (lane_of_thread() == 0) shared.of_warp[warp_of_thread()] = value;
  __syncthreads();
  return warp_reduce<Combine>(shared.of_warp[lane_of_thread()]);
}

/// Returns the sum over this lane and the lanes before it.
template <class T>
__device__ T warp_prefix(T value) {
#pragma unroll
  for (int distance = 1; distance < kWarpSize; distance *= 2) {
    const T before = __shfl_up_sync(kFullWarp, value, static_cast<unsigned>(distance));
    if (lane_of_thread() >= distance) value += before;
  }
  return value;
}

struct BlockPrefix {
  std::uint64_t before = 0;  ///< the sum over the threads before this one
  std::uint64_t total = 0;
};

__device__ inline BlockPrefix block_prefix(SampleShared& shared, std::uint64_t value) {
  const std::uint64_t up_to_here = warp_prefix(value);
  __syncthreads();
  if (lane_of_thread() == kWarpSize - 1) shared.of_warp[warp_of_thread()] = up_to_here;
  __syncthreads();
  const std::uint64_t warps = warp_prefix(shared.of_warp[lane_of_thread()]);
  const std::uint64_t through_warp = __shfl_sync(kFullWarp, warps, warp_of_thread());
  const std::uint64_t own_warp = shared.of_warp[warp_of_thread()];
  return {through_warp - own_warp + up_to_here - value, __shfl_sync(kFullWarp, warps, kWarpSize - 1)};
}

}  // namespace pagoda::kernels::cuda

#pragma once

/// Draws a token: tokens in ascending order of ids divide [0, 1) according to their mass, and the uniform number lies
/// in the share of one of them.

#include "kernels/cuda/sample_select.cuh"

namespace pagoda::kernels::cuda {

constexpr int kWarpChunk = 4 * kWarpSize;  ///< logits that a warp reads at a time

/// Returns the number of chunks of a lane in each segment of the row.
__device__ inline int chunks_per_segment(const RowView& view) {
  const int warp_chunks = ceil_divide(num_chunks(view), kWarpSize);
  return ceil_divide(warp_chunks, kMaxSegments);
}

/// Writes masses and ties of every segment to shared memory. Warp s % kSampleWarps measures segment s. Returns the
/// number of segments.
__device__ inline int measure_segments(SampleShared& shared, const RowView& view, Cut cut, const Weigher& weigher) {
  const int chunks = num_chunks(view);
  const int per_segment = chunks_per_segment(view);
  const int segments = ceil_divide(ceil_divide(chunks, kWarpSize), per_segment);
  __syncthreads();  // the data that shares this memory has been read
  for (int segment = warp_of_thread(); segment < segments; segment += kSampleWarps) {
    std::uint64_t mass = 0;
    std::uint32_t ties = 0;
    for (int i = 0; i < per_segment; ++i) {
      const int chunk = (segment * per_segment + i) * kWarpSize + lane_of_thread();
      if (chunk >= chunks) break;
      for_chunk(view, load_chunk(view, chunk), [&](int, float logit) {
        const std::uint32_t key = key_of(logit);
        if (key > cut.key) mass += weigher.mass(logit);
        if (key == cut.key) ++ties;
      });
    }
    mass = warp_reduce<Add>(mass);
    ties = warp_reduce<Add>(ties);
    if (lane_of_thread() == 0) {
      shared.segments.mass[segment] = mass;
      shared.segments.ties[segment] = ties;
    }
  }
  __syncthreads();
  return segments;
}

/// Returns the number of ties that the cut keeps out of `ties` ties. A tie is a logit with the cut's key; `before` ties
/// have lower ids than these.
__device__ inline std::uint64_t kept_ties(Cut cut, std::uint64_t before, std::uint64_t ties) {
  const auto max_ties = static_cast<std::uint64_t>(cut.ties);
  return before >= max_ties ? 0 : before + ties > max_ties ? max_ties - before : ties;
}

/// Returns the index of the first logit in segment `segment` at which the kept mass, summed from the start of the
/// segment, exceeds `rest`. `ties` is the number of ties before the segment. One warp calls it.
__device__ inline int find_in_segment(const RowView& view, Cut cut, const Weigher& weigher, int segment,
                                      std::uint64_t ties, std::uint64_t rest) {
  const int chunks = num_chunks(view);
  const int per_segment = chunks_per_segment(view);
  const std::uint64_t tie_mass = cut.ties > 0 ? weigher.mass(logit_of(cut.key)) : 0;
  for (int i = 0; i < per_segment; ++i) {
    const int chunk = (segment * per_segment + i) * kWarpSize + lane_of_thread();
    RowChunk loaded;
    std::uint32_t own_ties = 0;
    if (chunk < chunks) {
      loaded = load_chunk(view, chunk);
      for_chunk(view, loaded, [&](int, float logit) { own_ties += key_of(logit) == cut.key ? 1U : 0U; });
    }
    const std::uint32_t ties_through = warp_prefix(own_ties);
    std::uint64_t ties_before = ties + ties_through - own_ties;
    std::uint64_t own_mass = kept_ties(cut, ties_before, own_ties) * tie_mass;
    if (chunk < chunks) {
      for_chunk(view, loaded, [&](int, float logit) {
        if (key_of(logit) > cut.key) own_mass += weigher.mass(logit);
      });
    }
    const std::uint64_t mass_through = warp_prefix(own_mass);
    std::uint64_t before = mass_through - own_mass;
    int found = -1;
    if (before <= rest && rest < mass_through) {
      for_chunk(view, loaded, [&](int index, float logit) {
        const std::uint32_t key = key_of(logit);
        std::uint64_t mass = 0;
        if (key > cut.key) mass = weigher.mass(logit);
        if (key == cut.key) mass = kept_ties(cut, ties_before++, 1) * tie_mass;
        if (found < 0 && rest < before + mass) found = index;
        before += mass;
      });
    }
    const unsigned finders = __ballot_sync(kFullWarp, found >= 0);
    if (finders != 0) return __shfl_sync(kFullWarp, found, __ffs(static_cast<int>(finders)) - 1);
    rest -= __shfl_sync(kFullWarp, mass_through, kWarpSize - 1);
    ties += __shfl_sync(kFullWarp, ties_through, kWarpSize - 1);
  }
  return -1;
}

/// Returns the id of the token that `uniform` draws among the tokens that the cut keeps; their mass must not be 0.
__device__ inline std::int32_t draw_token(SampleShared& shared, const RowView& view, Cut cut, const Weigher& weigher,
                                          double uniform) {
  constexpr int kPerThread = kMaxSegments / kSampleThreads;
  const int segments = measure_segments(shared, view, cut, weigher);
  const std::uint64_t tie_mass = cut.ties > 0 ? weigher.mass(logit_of(cut.key)) : 0;
  const int first = static_cast<int>(threadIdx.x) * kPerThread;
  std::uint64_t own_ties = 0;
  for (int i = first; i < min(first + kPerThread, segments); ++i) own_ties += shared.segments.ties[i];
  std::uint64_t ties_before = block_prefix(shared, own_ties).before;
  const std::uint64_t own_first_tie = ties_before;
  std::uint64_t own_mass = 0;
  for (int i = first; i < min(first + kPerThread, segments); ++i) {
    const std::uint64_t ties = shared.segments.ties[i];
    own_mass += shared.segments.mass[i] + kept_ties(cut, ties_before, ties) * tie_mass;
    ties_before += ties;
  }
  const BlockPrefix masses = block_prefix(shared, own_mass);
  auto drawn = static_cast<std::uint64_t>(uniform * static_cast<double>(masses.total));
  if (drawn >= masses.total) drawn = masses.total - 1;
  if (masses.before <= drawn && drawn < masses.before + own_mass) {
    std::uint64_t before = masses.before;
    std::uint64_t ties_so_far = own_first_tie;
    for (int i = first; i < min(first + kPerThread, segments); ++i) {
      const std::uint64_t ties = shared.segments.ties[i];
      const std::uint64_t mass = shared.segments.mass[i] + kept_ties(cut, ties_so_far, ties) * tie_mass;
      if (drawn < before + mass) {
        shared.found_index = static_cast<std::uint32_t>(i);
        shared.found_rest = drawn - before;
        shared.found_ties = static_cast<std::uint32_t>(ties_so_far);
        break;
      }
      before += mass;
      ties_so_far += ties;
    }
  }
  __syncthreads();
  const int segment = static_cast<int>(shared.found_index);
  const std::uint64_t rest = shared.found_rest;
  const std::uint64_t ties = shared.found_ties;
  __syncthreads();
  if (warp_of_thread() == 0) {
    const int index = find_in_segment(view, cut, weigher, segment, ties, rest);
    if (lane_of_thread() == 0) shared.found_index = static_cast<std::uint32_t>(index);
  }
  __syncthreads();
  return view.id(static_cast<int>(shared.found_index));
}

}  // namespace pagoda::kernels::cuda

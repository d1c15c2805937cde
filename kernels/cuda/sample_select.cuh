#pragma once

/// Computes exact cuts through a row in descending order of its logits, without sorting it.
///
/// Weights are counted in whole units of 2^-kMassBits of the heaviest weight, so that sums do not depend on their
/// order: a row gives the same token for any assignment of weights to threads. Tokens lighter than one unit have no
/// weight.

#include <cstdint>

#include "kernels/cuda/sample_shared.cuh"

namespace pagoda::kernels::cuda {

constexpr int kMassBits = 42;
/// Maximum vocabulary: the masses of a row fit into 63 bits.
constexpr std::int64_t kMaxVocab = std::int64_t{1} << 21;

constexpr int kAllTies = 0x7FFFFFFF;
constexpr std::uint32_t kMinusInfKey = 0x007FFFFFU;

/// Returns a key that is larger for larger logits; equal logits (0 and -0 among them) have equal keys.
__device__ inline std::uint32_t key_of(float logit) {
  const std::uint32_t bits = __float_as_uint(logit + 0.0F);
  return bits & 0x80000000U ? ~bits : bits | 0x80000000U;
}
__device__ inline float logit_of(std::uint32_t key) {
  return __uint_as_float(key & 0x80000000U ? key & 0x7FFFFFFFU : ~key);
}

/// weight(x) = exp((x - max) / temperature).
struct Weigher {
  float max = 0.0F;
  float inverse_temperature = 1.0F;

  __device__ float weight(float logit) const { return expf((logit - max) * inverse_temperature); }
  __device__ std::uint64_t mass(float logit) const {
    constexpr auto kUnits = static_cast<float>(std::uint64_t{1} << kMassBits);
    return static_cast<std::uint64_t>(weight(logit) * kUnits);
  }
};

/// Keeps the logits with keys larger than `key`, and of the logits with this key the first `ties` in ascending order of
/// ids. The default keeps all logits.
struct Cut {
  std::uint32_t key = 0;
  int ties = 0;
};

__device__ inline Cut narrower(Cut a, Cut b) {
  if (a.key != b.key) return a.key > b.key ? a : b;
  return a.ties < b.ties ? a : b;
}

/// Returns the cut that keeps the logits with at least this weight, which is at most 1.
__device__ inline Cut cut_at_weight(const Weigher& weigher, float weight) {
  std::uint32_t below = kMinusInfKey - 1;
  std::uint32_t high = key_of(weigher.max);
  while (high - below > 1) {
    const std::uint32_t middle = below + (high - below) / 2;
    (weigher.weight(logit_of(middle)) >= weight ? high : below) = middle;
  }
  return {high, kAllTies};
}

/// Adds to a 64-bit sum that is stored in two words.
__device__ inline void add_to_digit(SampleShared& shared, std::uint32_t digit, std::uint64_t mass) {
  const int copy = lane_of_thread() % kDigitCopies;
  const auto low = static_cast<std::uint32_t>(mass);
  const std::uint32_t before = atomicAdd(&shared.digits.low[digit][copy], low);
  const std::uint32_t high = static_cast<std::uint32_t>(mass >> 32) + (before + low < before ? 1U : 0U);
  if (high != 0) atomicAdd(&shared.digits.high[digit][copy], high);
}

/// The digit at which a sum over the digits from the highest down reaches the needed amount.
struct Crossing {
  std::uint32_t digit = 0;
  /// Part of the needed amount that lies within the digit; 0 = the sum of all digits is less than needed.
  std::uint64_t rest = 0;
};

/// Finds the crossing. All threads call it, after they have added to the digits.
__device__ inline Crossing find_crossing(SampleShared& shared, std::uint64_t needed) {
  constexpr int kPerLane = kDigits / kWarpSize;
  const int thread = static_cast<int>(threadIdx.x);
  __syncthreads();
  if (thread < kDigits) {
    std::uint64_t total = 0;
    for (int copy = 0; copy < kDigitCopies; ++copy) {
      total += (static_cast<std::uint64_t>(shared.digits.high[thread][copy]) << 32) + shared.digits.low[thread][copy];
    }
    shared.digits.total[thread] = total;
  }
  if (thread == 0) shared.found_rest = 0;
  __syncthreads();
  if (warp_of_thread() == 0) {
    const int highest = kDigits - 1 - thread * kPerLane;
    std::uint64_t own = 0;
    for (int i = 0; i < kPerLane; ++i) own += shared.digits.total[highest - i];
    std::uint64_t sum = warp_prefix(own) - own;
    if (sum < needed && needed <= sum + own) {
      int digit = highest;
      while (sum + shared.digits.total[digit] < needed) sum += shared.digits.total[digit--];
      shared.found_index = static_cast<std::uint32_t>(digit);
      shared.found_rest = needed - sum;
    }
  }
  __syncthreads();
  return {shared.found_index, shared.found_rest};
}

/// Result of select_key().
struct Selected {
  std::uint32_t key = 0;  ///< key at which the sum of amounts reaches `needed`
  /// Part of `needed` among the logits with exactly this key; 0 = the whole row has less than `needed`.
  std::uint64_t rest = 0;
};
/// Radix selection, which both cuts use: adds amounts in descending order of keys until the sum reaches `needed`. A
/// logit with a key above ties_of.key has the amount amount(logit). All logits with the key ties_of.key together have
/// the amount `ties_amount`. Lower keys have none.

template <class Amount>
__device__ Selected select_key(SampleShared& shared, const RowView& view, std::uint64_t needed, Cut ties_of,
                               std::uint64_t ties_amount, const Amount& amount) {
  Selected selected{0, needed};
  std::uint32_t mask = 0;
  for (int shift = 32 - kDigitBits; shift >= 0; shift -= kDigitBits) {
    __syncthreads();  // the digits, or the segments in the same memory, have been read
    for (int i = static_cast<int>(threadIdx.x); i < kDigits * kDigitCopies; i += kSampleThreads) {
      (&shared.digits.low[0][0])[i] = 0;
      (&shared.digits.high[0][0])[i] = 0;
    }
    __syncthreads();
    const auto add = [&](std::uint32_t key, std::uint64_t value) {
      if ((key & mask) == selected.key && value != 0) add_to_digit(shared, key >> shift & (kDigits - 1), value);
    };
    for_row(view, [&](int, float logit) {
      const std::uint32_t key = key_of(logit);
      if (key > ties_of.key) add(key, amount(logit));
    });
    if (threadIdx.x == 0) add(ties_of.key, ties_amount);
    const Crossing crossing = find_crossing(shared, selected.rest);
    if (crossing.rest == 0) return {0, 0};
    selected.key |= crossing.digit << shift;
    selected.rest = crossing.rest;
    mask |= static_cast<std::uint32_t>(kDigits - 1) << shift;
  }
  return selected;
}

/// Returns the cut that keeps the k largest logits, or all if there are fewer.
__device__ inline Cut cut_at_top_k(SampleShared& shared, const RowView& view, int k) {
  const Selected selected =
      select_key(shared, view, static_cast<std::uint64_t>(k), {}, 0, [](float) { return std::uint64_t{1}; });
  if (selected.rest == 0) return {};
  return {selected.key, static_cast<int>(selected.rest)};
}

/// Number of logits of the view with exactly the cut's key that the cut keeps, and the mass of all logits that it
/// keeps.
struct Kept {
  std::uint64_t ties = 0;
  std::uint64_t mass = 0;
};

__device__ inline Kept measure_kept(SampleShared& shared, const RowView& view, Cut cut, const Weigher& weigher) {
  std::uint64_t mass = 0;
  std::uint64_t ties = 0;
  for_row(view, [&](int, float logit) {
    const std::uint32_t key = key_of(logit);
    if (key > cut.key) mass += weigher.mass(logit);
    if (key == cut.key) ++ties;
  });
  mass = combine_over_block<Add>(shared, mass);
  ties = combine_over_block<Add>(shared, ties);
  if (ties > static_cast<std::uint64_t>(cut.ties)) ties = static_cast<std::uint64_t>(cut.ties);
  if (ties > 0) mass += ties * weigher.mass(logit_of(cut.key));
  return {ties, mass};
}

/// Returns the cut that keeps, from the logits that `cut` keeps, the smallest number of the largest logits whose mass
/// is at least `needed` (1 to the mass of all).
__device__ inline Cut cut_at_mass(SampleShared& shared, const RowView& view, Cut cut, std::uint64_t kept_ties,
                                  const Weigher& weigher, std::uint64_t needed) {
  const std::uint64_t ties_mass = kept_ties > 0 ? kept_ties * weigher.mass(logit_of(cut.key)) : 0;
  const Selected selected =
      select_key(shared, view, needed, cut, ties_mass, [&](float logit) { return weigher.mass(logit); });
  if (selected.rest == 0) return cut;
  const std::uint64_t each = weigher.mass(logit_of(selected.key));
  return {selected.key, static_cast<int>((selected.rest + each - 1) / each)};
}

/// Writes the logits that the cut keeps to the candidates, in ascending order of ids. Returns their number; if it is
/// larger than kMaxCandidates, the candidates must not be used. `view` must not be the candidates.
__device__ inline int collect(SampleShared& shared, const RowView& view, Cut cut) {
  constexpr std::uint32_t kTie = 1U << 16;  // ties are counted in the upper half
  int above_so_far = 0;
  int ties_so_far = 0;
  const int chunks = num_chunks(view);
  int parity = 0;
  __syncthreads();  // the last candidates have been read
  for (int first = 0; first < chunks; first += kSampleThreads, parity ^= 1) {
    const int chunk = first + static_cast<int>(threadIdx.x);
    RowChunk loaded;
    std::uint32_t own = 0;
    if (chunk < chunks) {
      loaded = load_chunk(view, chunk);
      for_chunk(view, loaded, [&](int, float logit) {
        const std::uint32_t key = key_of(logit);
        own += key > cut.key ? 1U : key == cut.key ? kTie : 0U;
      });
    }
    const std::uint32_t up_to_here = warp_prefix(own);
    if (lane_of_thread() == kWarpSize - 1) shared.tile_counts[parity][warp_of_thread()] = up_to_here;
    __syncthreads();
    const std::uint32_t of_warp = shared.tile_counts[parity][lane_of_thread()];
    const std::uint32_t warps = warp_prefix(of_warp);
    const std::uint32_t all = __shfl_sync(kFullWarp, warps, kWarpSize - 1);
    const std::uint32_t before_warp = __shfl_sync(kFullWarp, warps - of_warp, warp_of_thread());
    const std::uint32_t before = before_warp + up_to_here - own;
    if (own != 0) {
      int above = above_so_far + static_cast<int>(before % kTie);
      int ties = ties_so_far + static_cast<int>(before / kTie);
      for_chunk(view, loaded, [&](int i, float logit) {
        const std::uint32_t key = key_of(logit);
        if (key < cut.key) return;
        const bool kept = key > cut.key || ties < cut.ties;
        const int at = above + min(ties, cut.ties);
        if (kept && at < kMaxCandidates) {
          shared.candidate_logits[at] = logit;
          shared.candidate_ids[at] = view.id(i);
        }
        ++(key > cut.key ? above : ties);
      });
    }
    above_so_far += static_cast<int>(all % kTie);
    ties_so_far += static_cast<int>(all / kTie);
  }
  __syncthreads();
  return above_so_far + min(ties_so_far, cut.ties);
}

__device__ inline RowView candidates(const SampleShared& shared, int count) {
  return {shared.candidate_logits, shared.candidate_ids, count};
}

}  // namespace pagoda::kernels::cuda

#pragma once

/// Counter-based random numbers: a draw is a pure function of its seed, sequence index and position, so it does not
/// depend on the batch, on the order of the draws, on threads or on preemption.
///
/// Generator: Philox4x32-10 of Salmon, Moraes, Dror and Shaw, "Parallel random numbers: as easy as 1, 2, 3" (SC 2011),
/// section 3.3 and table 2; the same constants as Random123's philox4x32.

#include <array>
#include <cstdint>

namespace pagoda::kernels {

/// Returns the block of four 32-bit words that belongs to a 128-bit counter and a 64-bit key.
constexpr std::array<std::uint32_t, 4> philox4x32(std::array<std::uint32_t, 4> counter,
                                                  std::array<std::uint32_t, 2> key) {
  constexpr int kRounds = 10;
  constexpr std::uint64_t kMultiplier0 = 0xD2511F53U;
  constexpr std::uint64_t kMultiplier1 = 0xCD9E8D57U;
  constexpr std::uint32_t kWeyl0 = 0x9E3779B9U;
  constexpr std::uint32_t kWeyl1 = 0xBB67AE85U;
  for (int round = 0; round < kRounds; ++round) {
    const std::uint64_t product0 = kMultiplier0 * counter[0];
    const std::uint64_t product1 = kMultiplier1 * counter[2];
    counter = {static_cast<std::uint32_t>(product1 >> 32) ^ counter[1] ^ key[0], static_cast<std::uint32_t>(product1),
               static_cast<std::uint32_t>(product0 >> 32) ^ counter[3] ^ key[1], static_cast<std::uint32_t>(product0)};
    key = {key[0] + kWeyl0, key[1] + kWeyl1};
  }
  return counter;
}

/// Returns the uniform number in [0, 1) that draws the token at `position` of sequence `sequence_index` of a request:
/// 53 bits, from the first two words of the block with key = seed and counter = (position, sequence_index, 0, 0).
constexpr double sampling_uniform(std::uint64_t seed, std::uint32_t sequence_index, std::uint32_t position) {
  const auto words = philox4x32({position, sequence_index, 0, 0},
                                {static_cast<std::uint32_t>(seed), static_cast<std::uint32_t>(seed >> 32)});
  const std::uint64_t bits = (static_cast<std::uint64_t>(words[0] >> 5) << 26) | (words[1] >> 6);
  return static_cast<double>(bits) * 0x1p-53;
}

}  // namespace pagoda::kernels

#pragma once

/// Sampling makes several passes over a whole row of logits. The passes are compiled for several instruction sets.
///
/// Every implementation gives the same bits: the sum of a block is a fixed tree (the upper half of the weights is added
/// to the lower until kSampleLanes are left, which are added in order in float64), and all use one exponential built
/// from fused multiply-adds.

#include <cstdint>
#include <vector>

namespace pagoda::kernels {

inline constexpr std::int64_t kSampleBlock = 256;  ///< logits per block of maxima and sums; a power of two
/// Number of partial sums at which the tree of a block's sum ends; a power of two.
inline constexpr std::int64_t kSampleLanes = 16;

constexpr std::int64_t sample_blocks(std::int64_t vocab) {
  return (vocab + kSampleBlock - 1) / kSampleBlock;
}

/// Parameters of a weight pass: weight(x) = exp((x - max) / temperature), 0 below exp(-87).
struct WeightScale {
  float max = 0.0F;
  float inverse_temperature = 1.0F;
};

struct SamplePasses {
  const char* name;

  /// block_maxima[b] = max of block b. Returns whether no logit is NaN or +inf.
  bool (*block_maxima)(const float* logits, std::int64_t vocab, float* block_maxima);

  /// block_sums[b] = sum of the weights of block b.
  void (*block_weight_sums)(const float* logits, std::int64_t vocab, WeightScale scale, double* block_sums);

  /// weights[i] = weight of logits[i].
  void (*weights)(const float* logits, std::int64_t count, WeightScale scale, float* weights);

  /// Returns the number of logits > bound.
  std::int64_t (*count_greater)(const float* logits, std::int64_t count, float bound);
};

/// Returns the fastest passes that this machine runs.
const SamplePasses& sample_passes();

/// Returns all passes that this machine runs, the portable ones first.
std::vector<const SamplePasses*> available_sample_passes();

}  // namespace pagoda::kernels

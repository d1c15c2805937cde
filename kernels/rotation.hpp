#pragma once

/// The rotation of columns before they are quantised.
///
/// A value that stands out makes the steps of its whole group wide. So each block of 32 columns, of the weights and of
/// x alike, goes through the same orthogonal map: fixed signs, then a Walsh-Hadamard transform, which spreads the value
/// over its block. Products of rows stay what they were:
///
///     x . w = sum over blocks of (x_factor * H * S * x) . (weight_factor * H * S * w),   H * H = 32 * identity
///
/// (as in QuaRot, Ashkboos et al. 2024, but within blocks and with nothing to fold into other layers). Both factors are
/// powers of two that keep the scales of weights away from float16's least ones.

#include <cstdint>

namespace pagoda::kernels {

constexpr int kRotationBlock = 32;
constexpr float kRotatedXFactor = 0.25F;
constexpr float kRotatedWeightFactor = 0.125F;
/// 1 / sqrt(32), with which the map of a block is orthogonal.
constexpr float kOrthogonalFactor = 0.17677669529663687F;
/// Bit i: column i of a block changes its sign. Values alike, as those behind a ReLU are, would add up to one column
/// of 32 times their size; with these signs it is 8 times at most, where sqrt(32) is the least there can be.
constexpr std::uint32_t kRotationSigns = 0xE1EA24C4U;

constexpr bool changes_sign(int column) {
  return (kRotationSigns >> column & 1U) != 0;
}

/// A Walsh-Hadamard transform of a block, in place. Each of its five steps is one rounded addition or subtraction, so
/// every processor that does them in this order gets the same bits.
inline void transform_block(float* block) {
  for (int stride = 1; stride < kRotationBlock; stride *= 2) {
    for (int pair = 0; pair < kRotationBlock; pair += 2 * stride) {
      for (int i = pair; i < pair + stride; ++i) {
        const float low = block[i];
        const float high = block[i + stride];
        block[i] = low + high;
        block[i + stride] = low - high;
      }
    }
  }
}

/// One block, in place.
inline void rotate_block(float* block, float factor) {
  for (int i = 0; i < kRotationBlock; ++i) block[i] *= changes_sign(i) ? -factor : factor;
  transform_block(block);
}

/// Back again, in place: after rotate_block with a factor f, this with 1 / (32 f).
inline void rotate_block_back(float* block, float factor) {
  transform_block(block);
  for (int i = 0; i < kRotationBlock; ++i) block[i] *= changes_sign(i) ? -factor : factor;
}

}  // namespace pagoda::kernels

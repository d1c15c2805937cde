#pragma once

/// The rotation of columns before they are quantised.
///
/// An outlier makes the quantisation steps of its whole group wide. So the same orthogonal map is applied to each block
/// of 32 columns of the weights and of x: fixed signs, then a Walsh-Hadamard transform, which spreads the outlier over
/// its block. Products of rows do not change:
///
///     x . w = sum over blocks of (x_factor * H * S * x) . (weight_factor * H * S * w),   H * H = 32 * identity
///
/// (as in QuaRot, Ashkboos et al. 2024, but within blocks, and no factors are folded into other layers). Both factors
/// are powers of two that keep the scales of weights well above the smallest float16 numbers.

#include <cstdint>

namespace pagoda::kernels {

constexpr int kRotationBlock = 32;
constexpr float kRotatedXFactor = 0.25F;
constexpr float kRotatedWeightFactor = 0.125F;
/// 1 / sqrt(32), the factor that makes the map of a block orthogonal.
constexpr float kOrthogonalFactor = 0.17677669529663687F;
/// Bit i: whether column i of a block changes its sign. Without sign changes, equal values (after a ReLU, many are
/// similar) would add up to one column of 32 times their size. With these signs the factor is at most 8; the lower
/// bound for any signs is sqrt(32).
constexpr std::uint32_t kRotationSigns = 0xE1EA24C4U;

constexpr bool changes_sign(int column) {
  return (kRotationSigns >> column & 1U) != 0;
}

/// Multiplies the columns of a block [kRotationBlock, num_rows] by `factor`, with the signs of the rotation.
template <int num_rows = 1>
void multiply_block(float* block, float factor) {
  for (int i = 0; i < kRotationBlock; ++i) {
    float* const column = block + i * num_rows;
    const float signed_factor = changes_sign(i) ? -factor : factor;
    for (int r = 0; r < num_rows; ++r) column[r] *= signed_factor;
  }
}

/// Applies the Walsh-Hadamard transform to the rows of a block [kRotationBlock, num_rows] in place. Each of its five
/// steps rounds one addition or subtraction per value, so every processor that keeps this order gets the same bits,
/// for any `num_rows`.
template <int num_rows = 1>
void transform_block(float* block) {
  for (int stride = 1; stride < kRotationBlock; stride *= 2) {
    for (int pair = 0; pair < kRotationBlock; pair += 2 * stride) {
      for (int i = pair; i < pair + stride; ++i) {
        float* const low = block + i * num_rows;
        float* const high = low + stride * num_rows;
        for (int r = 0; r < num_rows; ++r) {
          const float a = low[r];
          const float b = high[r];
          low[r] = a + b;
          high[r] = a - b;
        }
      }
    }
  }
}

/// Rotates one block of `num_rows` rows in place; column i has the values i * num_rows .. (i + 1) * num_rows - 1.
template <int num_rows = 1>
void rotate_block(float* block, float factor) {
  multiply_block<num_rows>(block, factor);
  transform_block<num_rows>(block);
}

/// Reverses rotate_block(block, f) in place, if `factor` is 1 / (32 f).
inline void rotate_block_back(float* block, float factor) {
  transform_block(block);
  multiply_block(block, factor);
}

}  // namespace pagoda::kernels

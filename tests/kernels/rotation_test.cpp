#include "kernels/rotation.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

#include <gtest/gtest.h>

#include "tests/kernels/op_fixtures.hpp"

namespace pagoda::kernels {
namespace {

using Block = std::array<float, kRotationBlock>;

Block rotated(Block block, float factor = 1.0F) {
  rotate_block(block.data(), factor);
  return block;
}

/// Returns entry [i, k] of the Walsh-Hadamard matrix: (-1)^(number of bits that are 1 in both i and k).
float hadamard(unsigned i, unsigned k) {
  return __builtin_popcount(i & k) % 2 == 0 ? 1.0F : -1.0F;
}

TEST(Rotation, IsTheWalshHadamardMatrixAfterTheSigns) {
  for (unsigned k = 0; k < kRotationBlock; ++k) {
    Block unit{};
    unit[k] = 1.0F;
    const Block column = rotated(unit);
    const float sign = changes_sign(static_cast<int>(k)) ? -1.0F : 1.0F;
    for (unsigned i = 0; i < kRotationBlock; ++i) EXPECT_EQ(column[i], sign * hadamard(i, k)) << i << ", " << k;
  }
}

TEST(Rotation, KeepsProducts) {
  const auto values = testing_support::random_floats(2 * kRotationBlock, 8);
  Block x{};
  Block w{};
  std::copy_n(values.begin(), kRotationBlock, x.begin());
  std::copy_n(values.begin() + kRotationBlock, kRotationBlock, w.begin());
  const auto product = [](const Block& a, const Block& b) {
    double sum = 0;
    for (std::size_t i = 0; i < a.size(); ++i) sum += double{a[i]} * double{b[i]};
    return sum;
  };
  EXPECT_NEAR(product(rotated(x, kRotatedXFactor), rotated(w, kRotatedWeightFactor)), product(x, w), 1e-5);
}

TEST(Rotation, RotatesEachRowOfAWideBlockWithTheBitsOfOneRow) {
  constexpr int kRows = 5;
  std::vector<float> wide = testing_support::random_floats(std::int64_t{kRows} * kRotationBlock, 9);
  std::vector<Block> rows(kRows);
  for (std::size_t i = 0; i < wide.size(); ++i) rows[i % kRows][i / kRows] = wide[i];
  rotate_block<kRows>(wide.data(), kRotatedWeightFactor);
  for (Block& row : rows) row = rotated(row, kRotatedWeightFactor);
  for (std::size_t i = 0; i < wide.size(); ++i) EXPECT_EQ(wide[i], rows[i % kRows][i / kRows]) << i;
}

TEST(Rotation, SpreadsOneLargeValueAndEqualOnes) {
  Block outlier{};
  outlier[5] = 32.0F;
  for (const float value : rotated(outlier)) EXPECT_EQ(std::abs(value), 32.0F);
  Block equal;
  equal.fill(1.0F);
  for (const float value : rotated(equal)) EXPECT_LE(std::abs(value), 8.0F);
}

}  // namespace
}  // namespace pagoda::kernels

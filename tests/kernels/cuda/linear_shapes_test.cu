#include <cstdint>
#include <vector>

#include <gtest/gtest.h>

#include "kernels/cuda/gemm.hpp"
#include "kernels/cuda/linear.hpp"
#include "kernels/cuda/quantized_fragments.cuh"
#include "kernels/cuda/quantized_linear.hpp"
#include "kernels/cuda/skinny_linear.hpp"

namespace pagoda::kernels::cuda {
namespace {

/// Returns params whose parts are 16-bit weights at the given places of one array; nothing is read.
LinearParams linear_of(const std::vector<WeightMatrix>& weights, std::int64_t in) {
  LinearParams p;
  p.in = in;
  p.num_tokens = 1;
  p.weights = weights;
  return p;
}

alignas(256) std::byte place[1 << 16];

TEST(LinearShapes, PartsThatLieBehindEachOtherAreOneProduct) {
  const std::vector<WeightMatrix> weights = {{place, DType::bf16, 4, 64},
                                             {place + 4 * 128, DType::bf16, 8, 64},
                                             {place + 13 * 128, DType::bf16, 2, 64},
                                             {place + 15 * 128, DType::f16, 2, 64}};
  EXPECT_EQ(linear_pieces(linear_of(weights, 64)),
            (std::vector<LinearPiece>{{0, 2, 12, 0}, {2, 1, 2, 12}, {3, 1, 2, 14}}));
}

TEST(LinearShapes, RowsGoInWholeTilesWhenTheScratchDoesNotHoldThemAll) {
  EXPECT_EQ(rows_per_pass(1000, 100, 100000), 1000);
  EXPECT_EQ(rows_per_pass(1000, 100, 99999), 896);
  EXPECT_EQ(rows_per_pass(1000, 100, 12799), 128);
  EXPECT_EQ(rows_per_pass(100, 100, 10), 100);
  EXPECT_EQ(rows_per_pass(1 << 20, 0, 0), 1 << 20);
}

TEST(LinearShapes, ABlockNeverCrossesAPart) {
  const std::vector<WeightMatrix> weights = {
      {place, DType::bf16, 5, 64}, {place, DType::bf16, 1, 64}, {place, DType::bf16, 8, 64}};
  const SkinnyArgs args = skinny_args(linear_of(weights, 64));
  ASSERT_EQ(args.num_parts, 3);
  EXPECT_EQ(args.num_blocks, 2 + 1 + 2);
  EXPECT_EQ(args.parts[1].first_block, 2);
  EXPECT_EQ(args.parts[1].first_column, 5);
  EXPECT_EQ(args.parts[2].first_block, 3);
  EXPECT_EQ(args.parts[2].first_column, 6);
}

TEST(LinearShapes, OnlyRowsOfWholeVectorsAreReadInVectors) {
  const auto in_vectors = [](std::size_t offset, DType dtype, std::int64_t in) {
    const std::vector<WeightMatrix> weights = {{place + offset, dtype, 1, in}};
    return reads_in_vectors(linear_of(weights, in));
  };
  EXPECT_TRUE(in_vectors(0, DType::bf16, 64));
  EXPECT_TRUE(in_vectors(16, DType::f32, 4));
  EXPECT_FALSE(in_vectors(2, DType::bf16, 64));
  EXPECT_FALSE(in_vectors(0, DType::bf16, 68));
  EXPECT_FALSE(in_vectors(0, DType::f32, 6));
}

TEST(LinearShapes, AnAlgorithmIsChosenForTheNextPowerOfTwo) {
  EXPECT_EQ(gemm_row_bucket(1), 16);
  EXPECT_EQ(gemm_row_bucket(16), 16);
  EXPECT_EQ(gemm_row_bucket(17), 32);
  EXPECT_EQ(gemm_row_bucket(8192), 8192);
  EXPECT_EQ(gemm_row_bucket(8193), 16384);
}

TEST(LinearShapes, QuantisedRowsAreFilledUpToTilesAndSteps) {
  const QuantizedX x = quantized_x(9, {.rows = 1, .columns = 50, .format = {8, 48}});
  EXPECT_EQ(x.tokens, 16);
  EXPECT_EQ(x.columns, 96);
  EXPECT_EQ(x.groups, 2);
  EXPECT_EQ(x.bytes(), 16 * 96 + 16 * 2 * 4);
  EXPECT_EQ(quantized_x(1, {.rows = 1, .columns = 17, .format = {4, 16}}).columns, 32);
  EXPECT_EQ(quantized_x(9, {.rows = 1, .columns = 50, .format = {8, 48, true}}).bytes(), x.bytes() + 16 * 2 * 4);
}

TEST(LinearShapes, PiecesOfColumnsFindTheirGroupWithoutADivision) {
  for (std::int64_t size = 16; size <= kMaxGroupSize; size += 16) {
    const Groups groups = groups_of(size, 1);
    const bool halves = grouping_of(size) == Grouping::by_halves;
    EXPECT_EQ(halves, size % 32 != 0);
    const int piece_columns = halves ? 16 : 32;
    for (int column = 0; column < 300000; column += piece_columns * 7) {
      const int first = column / 128 * 128;
      const int flush = (column - first) / piece_columns;
      const int group =
          halves ? BatchShape<Coding::int8, Grouping::by_halves, 4, false, false>::group_of(first, flush, groups)
                 : BatchShape<Coding::int8, Grouping::by_steps, 4, false, false>::group_of(first, flush, groups);
      ASSERT_EQ(group, column / size) << "column " << column << " of groups of " << size;
      const bool begins =
          halves ? BatchShape<Coding::int8, Grouping::by_halves, 4, true, false>::begins_group(first, flush, groups)
                 : BatchShape<Coding::int8, Grouping::by_steps, 4, true, false>::begins_group(first, flush, groups);
      ASSERT_EQ(begins, column % size == 0) << "column " << column << " of groups of " << size;
    }
  }
  EXPECT_EQ((BatchShape<Coding::int4, Grouping::by_fours, 8, true, false>::group_of(256, 1, groups_of(128, 9))), 3);
}

}  // namespace
}  // namespace pagoda::kernels::cuda

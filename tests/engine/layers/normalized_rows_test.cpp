#include "engine/layers/normalized_rows.hpp"

#include <bit>
#include <cstdint>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace pagoda::layers {
namespace {

TEST(NormalizedRows, HaveLengthOneAndZerosStayZero) {
  const std::vector<float> weight = {3, 4, 0, 0, -0.5F, 0, 1e-20F, 0};
  const auto rows = normalized_rows({weight.data(), DType::f32, 4, 2});
  ASSERT_TRUE(rows) << rows.error().message;
  const auto* out = rows->as<float>();
  EXPECT_THAT(std::vector<float>(out, out + 6), testing::ElementsAre(0.6F, 0.8F, 0, 0, -1, 0));
  EXPECT_FLOAT_EQ(out[6], 1e-8F) << "a length below 1e-12 counts as 1e-12";
}

TEST(NormalizedRows, RoundTheLengthAndTheQuotientsToTheirDtype) {
  const std::vector<float> values = {1.0F, 1.0F, 1.0F};  // the length is 1.7320508, in bfloat16 1.734375
  std::vector<BFloat16> weight;
  for (const float x : values) weight.push_back(to_bf16(x));
  const auto rows = normalized_rows({weight.data(), DType::bf16, 1, 3});
  ASSERT_TRUE(rows) << rows.error().message;
  const auto* out = rows->as<BFloat16>();
  for (int i = 0; i < 3; ++i) EXPECT_EQ(to_float(out[i]), to_float(to_bf16(1.0F / 1.734375F)));

  std::vector<Float16> half;
  for (const float x : values) half.push_back(to_f16(x));
  const auto half_rows = normalized_rows({half.data(), DType::f16, 1, 3});
  ASSERT_TRUE(half_rows) << half_rows.error().message;
  EXPECT_NEAR(to_float(half_rows->as<Float16>()[2]), 0.57735F, 1e-3);
}

}  // namespace
}  // namespace pagoda::layers

#include "engine/layers/normalized_rows.hpp"

#include <bit>
#include <cstdint>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace pagoda::layers {
namespace {

template <class Element>
std::vector<Element> normalized(const std::vector<Element>& values, DType dtype, std::int64_t rows) {
  std::vector<Element> out(values.size());
  const auto columns = static_cast<std::int64_t>(values.size()) / rows;
  normalize_rows({values.data(), dtype, rows, columns}, reinterpret_cast<std::byte*>(out.data()));
  return out;
}

TEST(NormalizedRows, HaveLengthOneAndZerosStayZero) {
  const std::vector<float> weight = {3, 4, 0, 0, -0.5F, 0, 1e-20F, 0};
  const auto out = normalized(weight, DType::f32, 4);
  EXPECT_THAT(std::vector<float>(out.begin(), out.begin() + 6), testing::ElementsAre(0.6F, 0.8F, 0, 0, -1, 0));
  EXPECT_FLOAT_EQ(out[6], 1e-8F) << "a length below 1e-12 counts as 1e-12";
}

TEST(NormalizedRows, RoundTheLengthAndTheQuotientsToTheirDtype) {
  const std::vector<float> values = {1.0F, 1.0F, 1.0F};  // the length is 1.7320508, in bfloat16 1.734375
  std::vector<BFloat16> weight;
  for (const float x : values) weight.push_back(to_bf16(x));
  for (const BFloat16 x : normalized(weight, DType::bf16, 1)) {
    EXPECT_EQ(to_float(x), to_float(to_bf16(1.0F / 1.734375F)));
  }

  std::vector<Float16> half;
  for (const float x : values) half.push_back(to_f16(x));
  EXPECT_NEAR(to_float(normalized(half, DType::f16, 1)[2]), 0.57735F, 1e-3);
}

}  // namespace
}  // namespace pagoda::layers

#include "kernels/dtype.hpp"

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

#include <gtest/gtest.h>

namespace pagoda {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

TEST(DTypeTest, GivesBackEveryHalfAfterAWayThroughFloat) {
  for (std::uint32_t bits = 0; bits < 65536; ++bits) {
    const auto half = static_cast<std::uint16_t>(bits);
    const float from_f16 = to_float(Float16{half});
    const float from_bf16 = to_float(BFloat16{half});
    if (std::isnan(from_f16)) {
      EXPECT_TRUE(std::isnan(to_float(to_f16(from_f16))));
    } else {
      EXPECT_EQ(to_f16(from_f16).bits, half);
    }
    if (std::isnan(from_bf16)) {
      EXPECT_TRUE(std::isnan(to_float(to_bf16(from_bf16))));
    } else {
      EXPECT_EQ(to_bf16(from_bf16).bits, half);
    }
  }
}

TEST(DTypeTest, KnowsTheValuesOfFloat16) {
  EXPECT_EQ(to_float(Float16{0x3C00}), 1.0F);
  EXPECT_EQ(to_float(Float16{0xC000}), -2.0F);
  EXPECT_EQ(to_float(Float16{0x7BFF}), 65504.0F);
  EXPECT_EQ(to_float(Float16{0x0001}), std::ldexp(1.0F, -24));
  EXPECT_EQ(to_float(Float16{0x7C00}), kInfinity);
}

TEST(DTypeTest, RoundsToNearestEven) {
  EXPECT_EQ(to_f16(1.0F + std::ldexp(1.0F, -11)).bits, 0x3C00);                          // halfway, down to even
  EXPECT_EQ(to_f16(1.0F + 3 * std::ldexp(1.0F, -11)).bits, 0x3C02);                      // halfway, up to even
  EXPECT_EQ(to_f16(1.0F + std::ldexp(1.0F, -11) + std::ldexp(1.0F, -20)).bits, 0x3C01);  // just above halfway
  EXPECT_EQ(to_f16(std::ldexp(1.0F, -25)).bits, 0x0000);                                 // half the smallest subnormal
  EXPECT_EQ(to_f16(std::ldexp(3.0F, -25)).bits, 0x0002);
  EXPECT_EQ(to_bf16(1.0F + std::ldexp(1.0F, -8)).bits, 0x3F80);
  EXPECT_EQ(to_bf16(1.0F + 3 * std::ldexp(1.0F, -8)).bits, 0x3F82);
}

TEST(DTypeTest, OverflowsToInfinity) {
  EXPECT_EQ(to_f16(65519.0F).bits, 0x7BFF);
  EXPECT_EQ(to_f16(65520.0F).bits, 0x7C00);
  EXPECT_EQ(to_f16(-1e10F).bits, 0xFC00);
  EXPECT_EQ(to_f16(kInfinity).bits, 0x7C00);
  EXPECT_EQ(to_bf16(std::numeric_limits<float>::max()).bits, 0x7F80);
}

TEST(DTypeTest, IsNamedAsInConfigFiles) {
  EXPECT_EQ(to_string(DType::f32), "float32");
  EXPECT_EQ(to_string(DType::f16), "float16");
  EXPECT_EQ(to_string(DType::bf16), "bfloat16");
}

}  // namespace
}  // namespace pagoda

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

TEST(DTypeTest, GivesBackEveryFp8AfterAWayThroughFloat) {
  for (std::uint32_t bits = 0; bits < 256; ++bits) {
    const Float8E4M3 x{static_cast<std::uint8_t>(bits)};
    EXPECT_EQ(to_fp8_e4m3(to_float(x)).bits, x.bits);
    EXPECT_EQ(std::isnan(to_float(x)), (bits & 0x7FU) == 0x7FU);
  }
}

TEST(DTypeTest, KnowsTheValuesOfFp8) {
  EXPECT_EQ(to_float(Float8E4M3{0x00}), 0.0F);
  EXPECT_TRUE(std::signbit(to_float(Float8E4M3{0x80})));
  EXPECT_EQ(to_float(Float8E4M3{0x01}), std::ldexp(1.0F, -9));
  EXPECT_EQ(to_float(Float8E4M3{0x07}), std::ldexp(7.0F, -9));
  EXPECT_EQ(to_float(Float8E4M3{0x08}), std::ldexp(1.0F, -6));
  EXPECT_EQ(to_float(Float8E4M3{0x38}), 1.0F);
  EXPECT_EQ(to_float(Float8E4M3{0xC4}), -3.0F);
  EXPECT_EQ(to_float(Float8E4M3{0x7E}), 448.0F);
}

TEST(DTypeTest, RoundsToFp8ToNearestEvenAndSaturates) {
  EXPECT_EQ(to_fp8_e4m3(1.0625F).bits, 0x38);  // halfway to 1.125, down to even
  EXPECT_EQ(to_fp8_e4m3(1.1875F).bits, 0x3A);  // halfway to 1.25, up to even
  EXPECT_EQ(to_fp8_e4m3(1.0626F).bits, 0x39);
  EXPECT_EQ(to_fp8_e4m3(1.96875F).bits, 0x40);                // rounds up to the next power of two
  EXPECT_EQ(to_fp8_e4m3(std::ldexp(1.0F, -10)).bits, 0x00);   // half the smallest subnormal
  EXPECT_EQ(to_fp8_e4m3(std::ldexp(15.0F, -10)).bits, 0x08);  // rounds up from the subnormals to the smallest normal
  EXPECT_EQ(to_fp8_e4m3(449.0F).bits, 0x7E);
  EXPECT_EQ(to_fp8_e4m3(-1e30F).bits, 0xFE);
  EXPECT_EQ(to_fp8_e4m3(kInfinity).bits, 0x7E);
  EXPECT_EQ(to_fp8_e4m3(std::numeric_limits<float>::quiet_NaN()).bits, 0x7F);
}

TEST(DTypeTest, TypesOfOneByteAreNotForWeights) {
  for (const DType dtype : {DType::f32, DType::f16, DType::bf16}) EXPECT_TRUE(is_weight_type(dtype));
  for (const DType dtype : {DType::fp8_e4m3, DType::int8}) EXPECT_FALSE(is_weight_type(dtype));
}

TEST(DTypeTest, IsNamedAsInConfigFiles) {
  EXPECT_EQ(to_string(DType::f32), "float32");
  EXPECT_EQ(to_string(DType::f16), "float16");
  EXPECT_EQ(to_string(DType::bf16), "bfloat16");
  EXPECT_EQ(to_string(DType::fp8_e4m3), "fp8_e4m3");
  EXPECT_EQ(to_string(DType::int8), "int8");
}

}  // namespace
}  // namespace pagoda

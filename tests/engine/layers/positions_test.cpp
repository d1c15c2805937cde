#include "engine/layers/positions.hpp"

#include <cmath>
#include <cstring>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/layers/rotary.hpp"

namespace pagoda::layers {
namespace {

constexpr std::int64_t kPositions = 33;

std::shared_ptr<kernels::Device> cpu() {
  auto device = kernels::create_cpu_device({.num_threads = 1, .isa = ""});
  return device ? *device : nullptr;
}

TEST(Positions, AlibiSlopesOfAPowerOfTwoAreAGeometricSequence) {
  EXPECT_THAT(alibi_slopes(1), testing::ElementsAre(1.0F / 256));
  EXPECT_THAT(alibi_slopes(4), testing::ElementsAre(0.25F, 0.0625F, 0.015625F, 0.00390625F));
  EXPECT_EQ(alibi_slopes(16)[0], static_cast<float>(std::sqrt(0.5)));
}

TEST(Positions, AlibiSlopesOfOtherNumbersTakeEveryOtherSlopeOfTwiceThePower) {
  EXPECT_THAT(alibi_slopes(3), testing::ElementsAre(0.0625F, 0.00390625F, 0.25F));
  EXPECT_THAT(alibi_slopes(6), testing::ElementsAre(0.25F, 0.0625F, 0.015625F, 0.00390625F, 0.5F, 0.125F));
  const auto slopes = alibi_slopes(40);  // Baichuan 13B
  ASSERT_EQ(slopes.size(), 40U);
  EXPECT_EQ(slopes[31], 1.0F / 256);
  EXPECT_EQ(slopes[32], static_cast<float>(std::exp2(-1.0 / 8)));
  EXPECT_EQ(slopes[39], static_cast<float>(std::exp2(-15.0 / 8)));
}

TEST(Positions, TheTablesOfADeviceHoldWhatTheShapeAsksFor) {
  const auto device = cpu();
  ASSERT_TRUE(device);
  PositionShape shape{.kind = PositionKind::rotary, .rotary = {.rotary_dim = 8, .scaling = {}}, .num_heads = 6};
  auto tables = PositionTables::create(*device, shape, kPositions);
  ASSERT_TRUE(tables) << tables.error().message;
  const auto expected = rotary_cos_sin(33, {.rotary_dim = 8, .theta = 10000.0, .scaling = {}});
  EXPECT_EQ(std::memcmp(tables->cos_sin(), expected.data(), expected.size() * sizeof(float)), 0);
  EXPECT_EQ(tables->rotary_dim(), 8);
  EXPECT_EQ(tables->alibi_slopes(), nullptr);
  EXPECT_EQ(PositionTables::bytes(shape, kPositions), 33 * 8 * 4);

  shape.kind = PositionKind::alibi;
  tables = PositionTables::create(*device, shape, kPositions);
  ASSERT_TRUE(tables) << tables.error().message;
  EXPECT_EQ(tables->cos_sin(), nullptr);
  EXPECT_EQ(tables->alibi_slopes()[4], 0.5F);

  shape.kind = PositionKind::learned;
  tables = PositionTables::create(*device, shape, kPositions);
  ASSERT_TRUE(tables);
  EXPECT_EQ(tables->cos_sin(), nullptr);
  EXPECT_EQ(tables->alibi_slopes(), nullptr);
}

}  // namespace
}  // namespace pagoda::layers

#include "kernels/random.hpp"

#include <set>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace pagoda::kernels {
namespace {

using ::testing::ElementsAre;

// The known-answer vectors that Random123 publishes for philox4x32-10.
TEST(Philox, GivesThePublishedKnownAnswers) {
  EXPECT_THAT(philox4x32({0, 0, 0, 0}, {0, 0}), ElementsAre(0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8));
  EXPECT_THAT(philox4x32({0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff}, {0xffffffff, 0xffffffff}),
              ElementsAre(0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd));
  EXPECT_THAT(philox4x32({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}),
              ElementsAre(0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1));
}

TEST(SamplingUniform, DiffersForEverySeedSequenceAndPosition) {
  std::set<double> draws;
  for (const std::uint64_t seed : {0ULL, 1ULL, 1ULL << 32, ~0ULL}) {
    for (std::uint32_t sequence = 0; sequence < 8; ++sequence) {
      for (std::uint32_t position = 0; position < 64; ++position) {
        draws.insert(sampling_uniform(seed, sequence, position));
      }
    }
  }
  EXPECT_EQ(draws.size(), 4U * 8U * 64U);
}

TEST(SamplingUniform, FillsTheUnitIntervalEvenly) {
  constexpr int kDraws = 100000;
  constexpr int kBins = 100;
  std::array<int, kBins> counts{};
  for (std::uint32_t position = 0; position < kDraws; ++position) {
    const double u = sampling_uniform(42, 0, position);
    ASSERT_GE(u, 0.0);
    ASSERT_LT(u, 1.0);
    ++counts[static_cast<std::size_t>(u * kBins)];
  }
  double chi_square = 0;
  constexpr double kExpected = static_cast<double>(kDraws) / kBins;
  for (const int count : counts) chi_square += (count - kExpected) * (count - kExpected) / kExpected;
  EXPECT_LT(chi_square, 148.2);  // 99 degrees of freedom, p = 0.001
}

}  // namespace
}  // namespace pagoda::kernels

#include "engine/step/codec.hpp"

#include <cstdint>
#include <limits>
#include <random>
#include <vector>

#include <gtest/gtest.h>

#include "engine/request/request_spec.hpp"
#include "engine/step/execute.hpp"
#include "engine/step/kv_layout.hpp"
#include "engine/step/outputs.hpp"
#include "engine/step/plan.hpp"
#include "engine/step/result.hpp"
#include "tests/engine/step/messages.hpp"

namespace pagoda {
namespace {

using test::RandomValue;

template <class T>
class CodecOfMessages : public ::testing::Test {};

using Messages =
    ::testing::Types<Range, PreemptionCosts, SequenceNeed, RunningCandidate, SwapInCandidate, AdmissionCandidate, Fork,
                     SampledToken, SequenceProgress, MemoryRequest, AdmissionOutcome, TableDelta, MemoryStats,
                     MemoryGrant, BlockMove, CachePlan, RowSampling, RowSpec, NewRow, RowTableDelta, RowWork,
                     ForcedToken, ExecuteStep, StepMasks, TokenReport, RowResult, StepResult, SwapMeasured,
                     SequenceOutput, PromptLogprobsOutput, RequestEnd, RequestStarted, RequestInterrupted, StepOutputs,
                     StopHit, KvGroup, KvLayout, SamplingParams, RequestSpec, Error>;
TYPED_TEST_SUITE(CodecOfMessages, Messages);

/// Number of fields that have no bytes.
template <class T>
constexpr std::size_t kLeftOut = 0;
template <>
constexpr std::size_t kLeftOut<RequestSpec> = 2;  // its grammar and its note

TYPED_TEST(CodecOfMessages, VisitsEveryField) {
  EXPECT_EQ(test::count_visited<TypeParam>() + kLeftOut<TypeParam>, test::count_fields<TypeParam>());
}

TYPED_TEST(CodecOfMessages, GivesBackWhatItWasGiven) {
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    const auto value = RandomValue(seed).draw<TypeParam>();
    const auto bytes = encode(value);
    TypeParam read = RandomValue(seed + 1).draw<TypeParam>();  // earlier values do not matter
    ASSERT_TRUE(decode(bytes, read)) << "seed " << seed;
    EXPECT_EQ(encode(read), bytes) << "seed " << seed;
  }
}

TYPED_TEST(CodecOfMessages, RefusesWhatIsCutOffOrTooLong) {
  for (std::uint64_t seed = 0; seed < 50; ++seed) {
    auto bytes = encode(RandomValue(seed).draw<TypeParam>());
    TypeParam read;
    for (std::size_t length = 0; length < bytes.size(); ++length) {
      EXPECT_FALSE(decode(std::span(bytes).first(length), read)) << "seed " << seed << ", " << length << " bytes";
    }
    bytes.push_back(std::byte{0});
    EXPECT_FALSE(decode(bytes, read));
  }
}

TYPED_TEST(CodecOfMessages, SurvivesAnyBytes) {
  std::mt19937_64 random(7);
  for (int i = 0; i < 2000; ++i) {
    auto bytes = encode(RandomValue(random()).draw<TypeParam>());
    for (std::uint64_t left = random() % 4; left > 0 && !bytes.empty(); --left) {
      bytes[random() % bytes.size()] = static_cast<std::byte>(random());
    }
    TypeParam read;
    static_cast<void>(decode(bytes, read));
  }
}

TEST(Codec, KnowsTheEndsOfEveryInteger) {
  const auto check = [](auto value) {
    auto read = value;
    read = 0;
    ASSERT_TRUE(decode(encode(value), read));
    EXPECT_EQ(read, value);
  };
  check(std::numeric_limits<std::int32_t>::min());
  check(std::numeric_limits<std::int64_t>::min());
  check(std::numeric_limits<std::int64_t>::max());
  check(std::numeric_limits<std::uint64_t>::max());
  EXPECT_EQ(encode(std::int32_t{-1}).size(), 1U);
  EXPECT_EQ(encode(std::uint64_t{127}).size(), 1U);
}

TEST(Codec, RefusesNumbersThatTheTypeDoesNotHold) {
  std::int32_t narrow = 0;
  EXPECT_FALSE(decode(encode(std::int64_t{1} << 40), narrow));
  std::uint64_t wide = 0;
  const std::vector<std::byte> eleven_bytes(10, std::byte{0xff});
  EXPECT_FALSE(decode(eleven_bytes, wide)) << "more than 64 bits";
  auto mode = PreemptionMode::recompute;
  EXPECT_TRUE(decode(std::vector{std::byte{2}}, mode));
  EXPECT_FALSE(decode(std::vector{std::byte{3}}, mode)) << "no such value";
  bool flag = false;
  EXPECT_FALSE(decode(std::vector{std::byte{2}}, flag));
}

TEST(Codec, DoesNotBelieveTheLengthOfAList) {
  std::vector<std::byte> bytes = encode(std::uint64_t{1} << 50);
  bytes.push_back(std::byte{0});
  std::vector<std::uint64_t> values;
  EXPECT_FALSE(decode(bytes, values));
  EXPECT_LT(values.capacity(), 16U);
}

}  // namespace
}  // namespace pagoda

#include "engine/request/ending_tokens.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace pagoda {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr TokenId kModelEnds[] = {2, 3};

SamplingParams params() {
  SamplingParams params;
  params.max_tokens = 10;
  params.stop_token_ids = {7, 3};
  return params;
}

TEST(EndingTokens, EndASequenceByTheModelsTokensAndByTheRequestsWhichAreTold) {
  const EndingTokens ends(params(), kModelEnds);
  EXPECT_EQ(ends.end_of(2, 1)->reason, FinishReason::stop);
  EXPECT_EQ(ends.end_of(2, 1)->stop_token, std::nullopt);
  EXPECT_EQ(ends.end_of(7, 1)->stop_token, 7);
  EXPECT_EQ(ends.end_of(3, 1)->stop_token, 3) << "of both";
  EXPECT_FALSE(ends.end_of(5, 9));
  EXPECT_THAT(ends.all(), ElementsAre(2, 3, 7, 3));
}

TEST(EndingTokens, EndItByLengthWithTheLastTokenItMayHave) {
  const EndingTokens ends(params(), kModelEnds);
  EXPECT_EQ(ends.end_of(5, 10)->reason, FinishReason::length);
  EXPECT_EQ(ends.end_of(7, 10)->reason, FinishReason::stop);
}

TEST(EndingTokens, LeaveOutTheModelsWhenTheyAreIgnored) {
  SamplingParams ignoring = params();
  ignoring.ignore_eos = true;
  const EndingTokens ends(ignoring, kModelEnds);
  EXPECT_FALSE(ends.end_of(2, 1));
  EXPECT_TRUE(ends.end_of(3, 1)) << "the request wants it";
}

TEST(EndingTokens, CountFromMinTokensOnAndAreBannedBefore) {
  SamplingParams patient = params();
  patient.min_tokens = 4;
  patient.ignore_eos = true;
  const EndingTokens ends(patient, kModelEnds);
  EXPECT_FALSE(ends.end_of(7, 3));
  EXPECT_TRUE(ends.end_of(7, 4)) << "the token that makes it four may be an end";
  EXPECT_THAT(ends.banned_before_min_tokens(), ElementsAre(2, 3, 7, 3)) << "as in vLLM also what is ignored";
  EXPECT_THAT(EndingTokens(params(), kModelEnds).banned_before_min_tokens(), IsEmpty());
}

}  // namespace
}  // namespace pagoda

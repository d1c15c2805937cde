#include "engine/request/ending_tokens.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace pagoda {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr TokenId kEos[] = {2, 3};

SamplingParams params() {
  SamplingParams params;
  params.max_tokens = 10;
  params.stop_token_ids = {7, 3};
  return params;
}

TEST(EndingTokens, end_a_sequence_by_the_models_tokens_and_by_the_requests_which_are_told) {
  const EndingTokens ends(params(), kEos);
  EXPECT_EQ(ends.end_of(2, 1)->reason, FinishReason::stop);
  EXPECT_EQ(ends.end_of(2, 1)->stop_token, std::nullopt);
  EXPECT_EQ(ends.end_of(7, 1)->stop_token, 7);
  EXPECT_EQ(ends.end_of(3, 1)->stop_token, 3) << "of both";
  EXPECT_FALSE(ends.end_of(5, 9));
  EXPECT_THAT(ends.all(), ElementsAre(2, 3, 7, 3));
}

TEST(EndingTokens, end_it_by_length_with_the_last_token_it_may_have) {
  const EndingTokens ends(params(), kEos);
  EXPECT_EQ(ends.end_of(5, 10)->reason, FinishReason::length);
  EXPECT_EQ(ends.end_of(7, 10)->reason, FinishReason::stop);
}

TEST(EndingTokens, leave_out_the_models_when_they_are_ignored) {
  SamplingParams ignoring = params();
  ignoring.ignore_eos = true;
  const EndingTokens ends(ignoring, kEos);
  EXPECT_FALSE(ends.end_of(2, 1));
  EXPECT_TRUE(ends.end_of(3, 1)) << "the request wants it";
}

TEST(EndingTokens, count_from_min_tokens_on_and_are_banned_before) {
  SamplingParams patient = params();
  patient.min_tokens = 4;
  patient.ignore_eos = true;
  const EndingTokens ends(patient, kEos);
  EXPECT_FALSE(ends.end_of(7, 3));
  EXPECT_TRUE(ends.end_of(7, 4)) << "the token that makes it four may be an end";
  EXPECT_THAT(ends.banned_before_min_tokens(), ElementsAre(2, 3, 7, 3)) << "as in vLLM also what is ignored";
  EXPECT_THAT(EndingTokens(params(), kEos).banned_before_min_tokens(), IsEmpty());
}

}  // namespace
}  // namespace pagoda

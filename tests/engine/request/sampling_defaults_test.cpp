#include "engine/request/sampling_defaults.hpp"

#include <gtest/gtest.h>

namespace pagoda {
namespace {

constexpr SamplingDefaults kDefaults{100, 0.7, 0.8, 20, 0.05, 1.1};

TEST(SamplingDefaultsOfAModel, FillOnlyWhatWasLeftOpen) {
  SamplingParams params;
  params.temperature = 0.3;
  params.top_k = 5;
  OpenSamplingFields open = OpenSamplingFields::all();
  open.temperature = false;
  open.top_k = false;
  const SamplingParams filled = with_defaults(params, open, kDefaults);
  EXPECT_EQ(filled.temperature, 0.3);
  EXPECT_EQ(filled.top_k, 5);
  EXPECT_EQ(filled.max_tokens, 100);
  EXPECT_EQ(filled.top_p, 0.8);
  EXPECT_EQ(filled.min_p, 0.05);
  EXPECT_EQ(filled.repetition_penalty, 1.1);
}

TEST(SamplingDefaultsOfAModel, LeaveEverythingAloneThatNobodyLeftOpen) {
  const SamplingParams filled = with_defaults({}, {}, kDefaults);
  EXPECT_EQ(filled.temperature, 1.0);
  EXPECT_EQ(filled.max_tokens, 16);
}

TEST(SamplingDefaultsOfAModel, KeepTheProtocolsValueWhereTheyHaveNone) {
  const SamplingParams filled = with_defaults({}, OpenSamplingFields::all(), {});
  EXPECT_EQ(filled.temperature, 1.0);
  EXPECT_EQ(filled.top_p, 1.0);
  EXPECT_EQ(filled.top_k, -1);
  EXPECT_EQ(filled.max_tokens, 16);
}

TEST(SamplingDefaultsOfAModel, GiveBeamSearchItsLengthOnly) {
  SamplingParams params;
  params.use_beam_search = true;
  params.temperature = 0;
  OpenSamplingFields open = OpenSamplingFields::all();
  open.temperature = false;
  const SamplingParams filled = with_defaults(params, open, kDefaults);
  EXPECT_EQ(filled.max_tokens, 100);
  EXPECT_EQ(filled.top_p, 1.0);
  EXPECT_EQ(filled.repetition_penalty, 1.0);
  EXPECT_TRUE(validate(filled, {}, 1000));
}

}  // namespace
}  // namespace pagoda

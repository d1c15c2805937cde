#include "engine/sampling/sequence_sampler.hpp"

#include <limits>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/sampling/row_sampling.hpp"

namespace pagoda {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr std::int64_t kSamplerVocab = 100;
const TokenIds kSamplerEos{2, 3};
const TokenIds kPrompt{10, 11, 12};

kernels::SampleRow row_of(const SamplingParams& params) {
  return SequenceSampler(row_sampling(params, kSamplerEos), 7, 1, kSamplerVocab).row(0, kPrompt, TokenIds{});
}

TEST(SequenceSampler, PassesTheParametersAndThePositionOn) {
  SamplingParams params;
  params.temperature = 0.5;
  params.top_k = 40;
  params.top_p = 0.9;
  params.min_p = 0.1;
  params.presence_penalty = 0.25;
  params.frequency_penalty = -0.5;
  params.repetition_penalty = 1.5;
  params.logprobs = 3;
  params.logit_bias = {{5, -1.5}, {6, 2.0}};
  const SequenceSampler sampler(row_sampling(params, kSamplerEos), 77, 4, kSamplerVocab);
  const TokenIds output{20, 21};
  const kernels::SampleRow row = sampler.row(9, kPrompt, output);
  EXPECT_EQ(row.logits_row, 9);
  EXPECT_EQ(row.seed, 77U);
  EXPECT_EQ(row.sequence_index, 4U);
  EXPECT_EQ(row.position, 5U);
  EXPECT_FLOAT_EQ(row.temperature, 0.5F);
  EXPECT_EQ(row.top_k, 40);
  EXPECT_FLOAT_EQ(row.top_p, 0.9F);
  EXPECT_FLOAT_EQ(row.min_p, 0.1F);
  EXPECT_FLOAT_EQ(row.presence_penalty, 0.25F);
  EXPECT_FLOAT_EQ(row.frequency_penalty, -0.5F);
  EXPECT_FLOAT_EQ(row.repetition_penalty, 1.5F);
  EXPECT_EQ(row.num_logprobs, 3);
  EXPECT_FALSE(row.processed_logprobs);
  EXPECT_THAT(row.bias_tokens, ElementsAre(5, 6));
  EXPECT_THAT(row.bias_values, ElementsAre(-1.5F, 2.0F));
  EXPECT_THAT(row.prompt_tokens, ElementsAre(10, 11, 12));
  EXPECT_THAT(row.output_tokens, ElementsAre(20, 21));
  EXPECT_THAT(row.banned_tokens, IsEmpty());
}

TEST(SequenceSampler, PenaltiesLookAtTheLastTokensOfPromptAndOutput) {
  const TokenIds output{20, 21};
  const auto row_with = [&](std::int64_t repeat_last_n) {
    SamplingParams params;
    params.repeat_last_n = repeat_last_n;
    return SequenceSampler(row_sampling(params, kSamplerEos), 0, 0, kSamplerVocab).row(0, kPrompt, output);
  };
  EXPECT_THAT(row_with(-1).prompt_tokens, ElementsAre(10, 11, 12));
  EXPECT_THAT(row_with(100).prompt_tokens, ElementsAre(10, 11, 12));
  EXPECT_THAT(row_with(3).prompt_tokens, ElementsAre(12));
  EXPECT_THAT(row_with(3).output_tokens, ElementsAre(20, 21));
  EXPECT_THAT(row_with(1).prompt_tokens, IsEmpty());
  EXPECT_THAT(row_with(1).output_tokens, ElementsAre(21));
  EXPECT_THAT(row_with(0).prompt_tokens, IsEmpty());
  EXPECT_THAT(row_with(0).output_tokens, IsEmpty());
  EXPECT_EQ(row_with(1).position, 5U) << "the token's place does not depend on the window";
}

TEST(SequenceSampler, BansEosAndStopTokensUntilMinTokensAreThere) {
  SamplingParams params;
  params.min_tokens = 2;
  params.stop_token_ids = {50};
  for (const bool ignore_eos : {false, true}) {
    params.ignore_eos = ignore_eos;
    const SequenceSampler sampler(row_sampling(params, kSamplerEos), 0, 0, kSamplerVocab);
    EXPECT_THAT(sampler.row(0, kPrompt, TokenIds{}).banned_tokens, ElementsAre(2, 3, 50));
    EXPECT_THAT(sampler.row(0, kPrompt, TokenIds{1}).banned_tokens, ElementsAre(2, 3, 50));
    EXPECT_THAT(sampler.row(0, kPrompt, TokenIds{1, 1}).banned_tokens, IsEmpty());
  }
}

TEST(SequenceSampler, ATopKThatLimitsNothingIsZero) {
  SamplingParams params;
  for (const std::int64_t top_k :
       {std::int64_t{-1}, std::int64_t{0}, kSamplerVocab, std::numeric_limits<std::int64_t>::max()}) {
    params.top_k = top_k;
    EXPECT_EQ(row_of(params).top_k, 0);
  }
}

TEST(SequenceSampler, ValuesTooSmallOrLargeForAFloatStayPositiveAndFinite) {
  SamplingParams params;
  params.temperature = 1e-300;
  params.top_p = 1e-300;
  params.repetition_penalty = 1e-300;
  EXPECT_GT(row_of(params).temperature, 0.0F);
  EXPECT_GT(row_of(params).top_p, 0.0F);
  EXPECT_GT(row_of(params).repetition_penalty, 0.0F);
  params.temperature = 1e300;
  EXPECT_LE(row_of(params).temperature, std::numeric_limits<float>::max());
}

TEST(SequenceSampler, AsksForTheLogprobsTheEngineNeeds) {
  SamplingParams params;
  EXPECT_EQ(row_of(params).num_logprobs, -1);
  params.best_of = 1;
  EXPECT_EQ(row_of(params).num_logprobs, -1) << "one output is not compared with anything";
  params.n = params.best_of.emplace(2);
  EXPECT_EQ(row_of(params).num_logprobs, 0) << "it is returned in its place";
  params.n = 1;
  EXPECT_EQ(row_of(params).num_logprobs, 0) << "the best of several are chosen by logprob";
  params.use_beam_search = true;
  params.temperature = 0;
  EXPECT_EQ(row_of(params).num_logprobs, 4) << "2 beams, 2 eos tokens";
  EXPECT_TRUE(row_of(params).processed_logprobs);
  params.ignore_eos = true;
  EXPECT_EQ(row_of(params).num_logprobs, 2);
}

TEST(SequenceSampler, PromptLogprobsForceThePromptsToken) {
  SamplingParams params;
  params.prompt_logprobs = 2;
  params.logit_bias = {{1, 5.0}};
  params.temperature = 0.3;
  const kernels::SampleRow row =
      SequenceSampler(row_sampling(params, kSamplerEos), 0, 0, kSamplerVocab).prompt_logprobs_row(4, 11, 1);
  EXPECT_EQ(row.logits_row, 4);
  EXPECT_EQ(row.forced_token, 11);
  EXPECT_EQ(row.position, 1U);
  EXPECT_EQ(row.num_logprobs, 2);
  EXPECT_THAT(row.bias_tokens, IsEmpty());
}

}  // namespace
}  // namespace pagoda

#include "engine/routing/router_core.hpp"

#include <gtest/gtest.h>

namespace pagoda::routing {
namespace {

AdmissionLimits limits() {
  AdmissionLimits limits;
  limits.vocab_size = 100;
  limits.max_model_len = 32;
  limits.max_kv_tokens = 24;
  limits.max_num_seqs = 4;
  limits.max_queued_requests = 2;
  limits.max_queued_prompt_tokens = 20;
  limits.seed = 7;
  return limits;
}

GenerateRequest text_request() {
  GenerateRequest request;
  request.prompt = "hello";
  return request;
}

TokenIds tokens(std::size_t count) {
  return TokenIds(count, 5);
}

TEST(RouterCore, CutsMaxTokensToWhatTheModelLengthLeaves) {
  RouterCore core(limits());
  GenerateRequest request = text_request();
  request.sampling.max_tokens = 1000;
  const auto id = core.submit(request);
  ASSERT_TRUE(id);
  const auto spec = core.prompt_encoded(*id, request, 9, tokens(10), 123);
  ASSERT_TRUE(spec);
  EXPECT_EQ((*spec)->sampling.max_tokens, 22);
  EXPECT_EQ((*spec)->tag, 9U);
  EXPECT_EQ((*spec)->arrival_us, 123);
  EXPECT_EQ((*spec)->prompt->size(), 10U);
}

TEST(RouterCore, FillsOpenFieldsWithTheModelsDefaultsAndKeepsWhatTheClientSaid) {
  AdmissionLimits with_defaults = limits();
  with_defaults.defaults.max_tokens = 7;
  with_defaults.defaults.temperature = 0.6;
  RouterCore core(with_defaults);
  GenerateRequest request = text_request();
  request.open.max_tokens = true;
  request.sampling.temperature = 0.9;
  const auto id = core.submit(request);
  ASSERT_TRUE(id);
  const auto spec = core.prompt_encoded(*id, request, 1, tokens(3), 0);
  ASSERT_TRUE(spec);
  EXPECT_EQ((*spec)->sampling.max_tokens, 7);
  EXPECT_EQ((*spec)->sampling.temperature, 0.9);
}

TEST(RouterCore, AFailedEngineRefusesWithItsReasonAlsoWhenItDrains) {
  RouterCore core(limits());
  core.start_draining();
  EXPECT_EQ(core.submit(text_request()).error().code, ErrorCode::shutting_down);
  core.engine_failed({ErrorCode::device_failed, "no device", {}, -1});
  core.start_draining();
  EXPECT_EQ(core.submit(text_request()).error().code, ErrorCode::device_failed);
  EXPECT_EQ(core.submit(text_request()).error().message, "no device");
}

TEST(RouterCore, RefusesARequestWhoseBansLeaveNoToken) {
  AdmissionLimits few = limits();
  few.vocab_size = 3;
  few.eos_token_ids = {2};
  RouterCore core(few);
  GenerateRequest request = text_request();
  request.sampling.min_tokens = 1;
  request.sampling.stop_token_ids = {0, 1};
  EXPECT_EQ(core.submit(request).error().code, ErrorCode::invalid_request);
  EXPECT_EQ(core.num_live(), 0U);
}

TEST(RouterCore, RefusesAPromptThatNeverFitsAndForgetsIt) {
  RouterCore core(limits());
  for (const std::size_t length : {std::size_t{24}, std::size_t{32}, std::size_t{5000}}) {
    const auto id = core.submit(text_request());
    ASSERT_TRUE(id);
    const auto spec = core.prompt_encoded(*id, text_request(), 1, tokens(length), 0);
    ASSERT_FALSE(spec);
    EXPECT_EQ(spec.error().code, ErrorCode::context_too_long);
    EXPECT_EQ(spec.error().param, "prompt");
    EXPECT_EQ(core.num_live(), 0U);
  }
}

TEST(RouterCore, RefusesATextThatIsTooLongWhateverItsTokensAreBeforeItIsTokenized) {
  AdmissionLimits with_bound = limits();
  with_bound.max_bytes_per_token = 5;
  RouterCore core(with_bound);
  GenerateRequest request;
  request.prompt = std::string(24 * 5 - 1, 'a');
  EXPECT_TRUE(core.submit(request));
  request.prompt->push_back('a');
  const auto refused = core.submit(request);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::context_too_long);
  EXPECT_EQ(refused.error().param, "prompt");
  EXPECT_EQ(core.num_live(), 1U);
  RouterCore unbounded(limits());
  EXPECT_TRUE(unbounded.submit(request));
}

TEST(RouterCore, ARequestAbortedBeforeItsStartHasAllItsOutputsAndIsForgotten) {
  RouterCore core(limits());
  GenerateRequest request = text_request();
  request.sampling.n = 2;
  request.sampling.logprobs = 1;
  const auto id = core.submit(request);
  ASSERT_TRUE(id);
  const RequestResult result = core.aborted_before_start(*id, request, 1000, 3000);
  ASSERT_EQ(result.outputs.size(), 2U);
  EXPECT_EQ(result.outputs[1].index, 1);
  for (const SequenceResult& output : result.outputs) {
    EXPECT_EQ(output.finish_reason, FinishReason::abort);
    EXPECT_TRUE(output.text.empty());
    EXPECT_TRUE(output.logprobs && output.logprobs->empty());
  }
  EXPECT_EQ(result.timing.total_ms, 2.0);
  EXPECT_EQ(core.num_live(), 0U);
}

TEST(RouterCore, NamesOfTenantsAndCacheSaltsHaveALongestLength) {
  RouterCore core(limits());
  GenerateRequest request = text_request();
  request.user = std::string(kMaxUserBytes, 'u');
  request.cache_salt = std::string(kMaxCacheSaltBytes, 's');
  EXPECT_TRUE(core.submit(request));
  request.user.push_back('u');
  EXPECT_EQ(core.submit(request).error().param, "user");
  request.user.clear();
  request.cache_salt.push_back('s');
  const auto refused = core.submit(request);
  EXPECT_EQ(refused.error().param, "cache_salt");
  EXPECT_EQ(refused.error().code, ErrorCode::invalid_request);
}

TEST(RouterCore, RefusesAnEmptyPromptAndIdsOutsideTheVocabulary) {
  RouterCore core(limits());
  const auto empty = core.submit(text_request());
  EXPECT_EQ(core.prompt_encoded(*empty, text_request(), 1, TokenIds{}, 0).error().code, ErrorCode::invalid_request);
  const auto outside = core.submit(text_request());
  EXPECT_EQ(core.prompt_encoded(*outside, text_request(), 1, TokenIds{100}, 0).error().param, "prompt");
  const auto bad_text = core.submit(text_request());
  const auto spec = core.prompt_encoded(*bad_text, text_request(), 1, fail(ErrorCode::invalid_request, "not UTF-8"), 0);
  EXPECT_EQ(spec.error().message, "not UTF-8");
  EXPECT_EQ(spec.error().param, "prompt");
}

TEST(RouterCore, SaysQueueFullWithATimeToTryAgainAndTakesMoreWhenOneEnds) {
  RouterCore core(limits());
  const auto first = core.submit(text_request());
  ASSERT_TRUE(first);
  ASSERT_TRUE(core.submit(text_request()));
  const auto third = core.submit(text_request());
  ASSERT_FALSE(third);
  EXPECT_EQ(third.error().code, ErrorCode::queue_full);
  EXPECT_GT(third.error().retry_after_ms, 0);
  core.closed(*first);
  core.closed(*first);  // a second time changes nothing
  EXPECT_TRUE(core.submit(text_request()));
  EXPECT_EQ(core.num_live(), 2U);
}

TEST(RouterCore, CountsQueuedPromptTokens) {
  RouterCore core(limits());
  const auto id = core.submit(text_request());
  ASSERT_TRUE(core.prompt_encoded(*id, text_request(), 1, tokens(20), 0));
  EXPECT_EQ(core.submit(text_request()).error().code, ErrorCode::queue_full);
  core.closed(*id);
  EXPECT_TRUE(core.submit(text_request()));
}

TEST(RouterCore, GivesRequestsWithoutASeedOnesThatDifferAndRepeat) {
  RouterCore one(limits());
  RouterCore two(limits());
  const auto seed_of_next = [](RouterCore& core) {
    const auto id = core.submit(text_request());
    const auto spec = core.prompt_encoded(*id, text_request(), 1, tokens(1), 0);
    core.closed(*id);
    return (*spec)->seed;
  };
  const auto a = seed_of_next(one);
  const auto b = seed_of_next(one);
  EXPECT_NE(a, b);
  EXPECT_EQ(seed_of_next(two), a);
  EXPECT_EQ(seed_of_next(two), b);
}

TEST(RouterCore, RefusesEverythingOnceDraining) {
  RouterCore core(limits());
  core.start_draining();
  EXPECT_EQ(core.submit(text_request()).error().code, ErrorCode::shutting_down);
}

TEST(RouterCore, NamesTheFieldThatIsWrong) {
  RouterCore core(limits());
  const auto param = [&](GenerateRequest request) { return core.submit(request).error().param; };
  EXPECT_EQ(param(GenerateRequest{}), "prompt");
  GenerateRequest both = text_request();
  both.prompt_token_ids = {{1}};
  EXPECT_EQ(param(both), "prompt_token_ids");
  GenerateRequest ids;
  ids.prompt_token_ids = {{-1}};
  EXPECT_EQ(param(ids), "prompt_token_ids");
  GenerateRequest many = text_request();
  many.sampling.n = 5;
  EXPECT_EQ(param(many), "n");
  EXPECT_EQ(core.num_live(), 0U);
}

}  // namespace
}  // namespace pagoda::routing

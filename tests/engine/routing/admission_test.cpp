#include "engine/routing/admission.hpp"

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

namespace pagoda::routing {
namespace {

AdmissionLimits admission_limits() {
  AdmissionLimits limits;
  limits.vocab_size = 100;
  limits.max_model_len = 32;
  limits.max_kv_tokens = 24;
  limits.max_num_seqs = 4;
  limits.seed = 7;
  return limits;
}

GenerateRequest hello_request() {
  GenerateRequest request;
  request.prompt = "hello";
  return request;
}

TokenIds prompt_of(std::size_t count) {
  return TokenIds(count, 5);
}

TEST(Admission, CutsMaxTokensToWhatTheModelLengthLeaves) {
  GenerateRequest request = hello_request();
  request.sampling.max_tokens = 1000;
  const auto spec = make_spec({.id = 1, .tag = 9, .at_us = 123}, request, prompt_of(10), admission_limits());
  ASSERT_TRUE(spec);
  EXPECT_EQ((*spec)->sampling.max_tokens, 22);
  EXPECT_EQ((*spec)->tag, 9U);
  EXPECT_EQ((*spec)->arrival_us, 123);
  EXPECT_EQ((*spec)->prompt->size(), 10U);
}

TEST(Admission, FillsOpenFieldsWithTheModelsDefaultsAndKeepsWhatTheClientSaid) {
  AdmissionLimits with_defaults = admission_limits();
  with_defaults.defaults.max_tokens = 7;
  with_defaults.defaults.temperature = 0.6;
  GenerateRequest request = hello_request();
  request.open.max_tokens = true;
  request.sampling.temperature = 0.9;
  const auto spec = make_spec({.id = 1}, request, prompt_of(3), with_defaults);
  ASSERT_TRUE(spec);
  EXPECT_EQ((*spec)->sampling.max_tokens, 7);
  EXPECT_EQ((*spec)->sampling.temperature, 0.9);
}

TEST(Admission, RefusesARequestWhoseBansLeaveNoToken) {
  AdmissionLimits few = admission_limits();
  few.vocab_size = 3;
  few.eos_token_ids = {2};
  GenerateRequest request = hello_request();
  request.sampling.min_tokens = 1;
  request.sampling.stop_token_ids = {0, 1};
  EXPECT_EQ(check_request(request, few).error().code, ErrorCode::invalid_request);
}

TEST(Admission, RefusesAPromptThatNeverFits) {
  for (const std::size_t length : {std::size_t{24}, std::size_t{32}, std::size_t{5000}}) {
    const auto spec = make_spec({.id = 1}, hello_request(), prompt_of(length), admission_limits());
    ASSERT_FALSE(spec);
    EXPECT_EQ(spec.error().code, ErrorCode::context_too_long);
    EXPECT_EQ(spec.error().param, "prompt");
  }
}

TEST(Admission, RefusesATextThatIsTooLongWhateverItsTokensAreBeforeItIsTokenized) {
  AdmissionLimits with_bound = admission_limits();
  with_bound.max_bytes_per_token = 5;
  GenerateRequest request;
  request.prompt = std::string(24 * 5 - 1, 'a');
  EXPECT_TRUE(check_request(request, with_bound));
  request.prompt->push_back('a');
  const auto refused = check_request(request, with_bound);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::context_too_long);
  EXPECT_EQ(refused.error().param, "prompt");
  EXPECT_TRUE(check_request(request, admission_limits()));
}

TEST(Admission, ARequestAbortedBeforeItsStartHasAllItsOutputs) {
  GenerateRequest request = hello_request();
  request.sampling.n = 2;
  request.sampling.logprobs = 1;
  const RequestResult result = result_before_start({.id = 1, .at_us = 1000}, request, 3000, admission_limits());
  ASSERT_EQ(result.outputs.size(), 2U);
  EXPECT_EQ(result.outputs[1].index, 1);
  for (const SequenceResult& output : result.outputs) {
    EXPECT_EQ(output.finish_reason, FinishReason::abort);
    EXPECT_TRUE(output.text.empty());
    EXPECT_TRUE(output.logprobs && output.logprobs->empty());
  }
  EXPECT_EQ(result.timing.total_ms, 2.0);
}

TEST(Admission, NamesOfTenantsAndCacheSaltsHaveALongestLength) {
  GenerateRequest request = hello_request();
  request.user = std::string(kMaxUserBytes, 'u');
  request.cache_salt = std::string(kMaxCacheSaltBytes, 's');
  EXPECT_TRUE(check_request(request, admission_limits()));
  request.user.push_back('u');
  EXPECT_EQ(check_request(request, admission_limits()).error().param, "user");
  request.user.clear();
  request.cache_salt.push_back('s');
  const auto refused = check_request(request, admission_limits());
  EXPECT_EQ(refused.error().param, "cache_salt");
  EXPECT_EQ(refused.error().code, ErrorCode::invalid_request);
}

TEST(Admission, RefusesAnEmptyPromptAndIdsOutsideTheVocabulary) {
  const auto refusal = [](Result<TokenIds> prompt) {
    return make_spec({.id = 1}, hello_request(), std::move(prompt), admission_limits()).error();
  };
  EXPECT_EQ(refusal(TokenIds{}).code, ErrorCode::invalid_request);
  EXPECT_EQ(refusal(TokenIds{100}).param, "prompt");
  const Error bad_text = refusal(fail(ErrorCode::invalid_request, "not UTF-8"));
  EXPECT_EQ(bad_text.message, "not UTF-8");
  EXPECT_EQ(bad_text.param, "prompt");
}

TEST(Admission, GivesRequestsWithoutASeedOnesThatDifferAndRepeat) {
  const auto seed = [](RequestId id) {
    return (*make_spec({.id = id}, hello_request(), prompt_of(1), admission_limits()))->seed;
  };
  EXPECT_NE(seed(1), seed(2));
  EXPECT_EQ(seed(1), seed(1));
}

TEST(Admission, RefusesLiteralsThatAreNotRangesOfThePromptInOrder) {
  const auto refusal = [](std::vector<ByteRange> literals) {
    GenerateRequest request = hello_request();  // has 5 bytes
    request.prompt_literals = std::move(literals);
    const Status checked = check_request(request, admission_limits());
    return checked ? std::string() : checked.error().param + ": " + checked.error().message;
  };
  EXPECT_EQ(refusal({{0, 2}, {2, 2}, {2, 5}, {5, 5}}), "");
  EXPECT_EQ(refusal({{0, 6}}), "prompt_literals: prompt_literals has [0, 6), which goes beyond the 5 bytes of text");
  EXPECT_EQ(refusal({{3, 2}}), "prompt_literals: prompt_literals has [3, 2), which ends before it begins");
  EXPECT_EQ(refusal({{0, 3}, {2, 4}}),
            "prompt_literals: prompt_literals has [2, 4), which begins before the previous range ends");
  GenerateRequest ids;
  ids.prompt_token_ids = {{1}};
  ids.prompt_literals = {{0, 1}};
  const Status of_ids = check_request(ids, admission_limits());
  ASSERT_FALSE(of_ids);
  EXPECT_EQ(of_ids.error().code, ErrorCode::invalid_request);
  EXPECT_EQ(of_ids.error().param, "prompt_literals");
}

TEST(Admission, NamesTheFieldThatIsWrong) {
  const auto param = [](const GenerateRequest& request) {
    return check_request(request, admission_limits()).error().param;
  };
  EXPECT_EQ(param(GenerateRequest{}), "prompt");
  GenerateRequest both = hello_request();
  both.prompt_token_ids = {{1}};
  EXPECT_EQ(param(both), "prompt_token_ids");
  GenerateRequest ids;
  ids.prompt_token_ids = {{-1}};
  EXPECT_EQ(param(ids), "prompt_token_ids");
  GenerateRequest many = hello_request();
  many.sampling.n = 5;
  EXPECT_EQ(param(many), "") << "sampled sequences wait for each other";
  many.sampling.use_beam_search = true;
  many.sampling.temperature = 0;
  EXPECT_EQ(param(many), "n") << "beams run together";
}

/// Returns the length of the prompt that is left of `num_tokens`, or the error's param.
std::string truncated(std::optional<std::int64_t> truncate, std::size_t num_tokens,
                      std::optional<std::int64_t> max_tokens = {}) {
  GenerateRequest request;
  request.prompt_token_ids.emplace(num_tokens, 5);
  request.truncate_prompt_tokens = truncate;
  request.open.max_tokens = !max_tokens;
  request.sampling.max_tokens = max_tokens.value_or(1 << 30);
  if (const Status checked = check_request(request, admission_limits()); !checked) return checked.error().param;
  TokenIds prompt(num_tokens);
  for (std::size_t i = 0; i < num_tokens; ++i) prompt[i] = static_cast<TokenId>(i);
  const auto spec = make_spec({.id = 1}, request, prompt, admission_limits());
  if (!spec) return spec.error().param;
  EXPECT_EQ((*spec)->prompt->back(), prompt.back()) << "the last tokens are kept";
  EXPECT_EQ((*spec)->prompt->size() + static_cast<std::size_t>((*spec)->prompt->front()), num_tokens);
  return std::to_string((*spec)->prompt->size());
}

TEST(Admission, KeepsTheLastTokensOfAPromptThatIsToBeTruncated) {
  EXPECT_EQ(truncated({}, 10), "10");
  EXPECT_EQ(truncated({}, 50), "prompt_token_ids");
  EXPECT_EQ(truncated(7, 50), "7");
  EXPECT_EQ(truncated(7, 7), "7");
  EXPECT_EQ(truncated(7, 3), "3");
  EXPECT_EQ(truncated(23, 50), "23");
  // The KV cache has room for 24 tokens: -1 leaves room for max_tokens, or for one.
  EXPECT_EQ(truncated(-1, 50), "23");
  EXPECT_EQ(truncated(-1, 50, 10), "14");
  EXPECT_EQ(truncated(-1, 10, 10), "10");
  for (const std::int64_t unusable : {-2, 0, 24, 1000}) {
    EXPECT_EQ(truncated(unusable, 5), "truncate_prompt_tokens") << unusable;
  }
  EXPECT_EQ(truncated(-1, 5, 24), "truncate_prompt_tokens") << "no room for a prompt";
}

TEST(Admission, ATextThatIsToBeTruncatedMayBeOfAnyLength) {
  AdmissionLimits limits = admission_limits();
  limits.max_bytes_per_token = 4;
  GenerateRequest request;
  request.prompt = std::string(10'000, 'a');
  EXPECT_EQ(check_request(request, limits).error().code, ErrorCode::context_too_long);
  request.truncate_prompt_tokens = 5;
  EXPECT_TRUE(check_request(request, limits));
}

TEST(Admission, CountsTheLogprobsOfARequestThatWantsMany) {
  AdmissionLimits limits = admission_limits();
  limits.vocab_size = 1 << 20;
  limits.max_model_len = limits.max_kv_tokens = 1 << 20;
  limits.sampling.max_logprobs = -1;
  const auto spec_of = [&](auto change) {
    GenerateRequest request = hello_request();
    request.sampling.max_tokens = 1000;
    change(request.sampling);
    EXPECT_TRUE(check_request(request, limits));
    return make_spec({.id = 1}, request, prompt_of(40), limits);
  };
  const auto whole = spec_of([](SamplingParams& s) { s.logprobs = -1; });
  ASSERT_TRUE(whole);
  EXPECT_EQ((*whole)->sampling.logprobs, 1 << 20) << "what follows knows numbers only";
  EXPECT_EQ((*whole)->sampling.max_tokens, 15) << "2^24 log-probabilities, with those of the sampled tokens";
  EXPECT_EQ((*spec_of([](SamplingParams& s) { s.logprobs = 20; }))->sampling.max_tokens, 1000);
  EXPECT_EQ((*spec_of([](SamplingParams& s) { s.logprobs = -1, s.n = 3; }))->sampling.max_tokens, 5);
  const auto several = spec_of([](SamplingParams& s) { s.logprobs = -1, s.n = 16; });
  ASSERT_FALSE(several);
  EXPECT_EQ(several.error().param, "logprobs");
  const auto of_prompt = spec_of([](SamplingParams& s) { s.prompt_logprobs = -1; });
  ASSERT_FALSE(of_prompt);
  EXPECT_EQ(of_prompt.error().param, "prompt_logprobs");
  const auto few = spec_of([](SamplingParams& s) { s.logprobs = -1, s.logprob_token_ids = {{1, 2}}; });
  ASSERT_TRUE(few);
  EXPECT_EQ((*few)->sampling.max_tokens, 1000) << "the two tokens are listed in place of the vocabulary";
  EXPECT_FALSE((*few)->sampling.logprobs);
}

TEST(Admission, RefusesBadWordsThatTheModelDoesNotKnow) {
  const auto with_words = [](std::vector<TokenIds> words) {
    return make_spec({.id = 1}, hello_request(), prompt_of(3), admission_limits(), std::move(words));
  };
  EXPECT_EQ((*with_words({{1, 2}, {99}}))->bad_words, (std::vector<TokenIds>{{1, 2}, {99}}));
  EXPECT_EQ(with_words({{1}, {100}}).error().param, "bad_words");
  EXPECT_EQ(with_words({{1}, {}}).error().param, "bad_words");
}

TEST(Admission, AStreamHasAtLeastTheServersInterval) {
  AdmissionLimits limits = admission_limits();
  const auto interval = [&](std::optional<std::int64_t> asked) {
    GenerateRequest request = hello_request();
    request.sampling.stream_interval = asked;
    return (*make_spec({.id = 1}, request, prompt_of(3), limits))->sampling.stream_interval.value_or(1);
  };
  EXPECT_EQ(interval({}), 1);
  EXPECT_EQ(interval(5), 5);
  limits.stream_interval = 4;
  EXPECT_EQ(interval({}), 4);
  EXPECT_EQ(interval(2), 4);
  EXPECT_EQ(interval(5), 5);
}

TEST(Admission, AStreamThatGoesOnFromAnotherServerKeepsItsInterval) {
  AdmissionLimits limits = admission_limits();
  limits.stream_interval = 4;
  GenerateRequest request = hello_request();
  RequestProgress progress;
  progress.sequences.emplace_back();
  request.progress = std::make_shared<const RequestProgress>(std::move(progress));
  for (const auto interval : {std::optional<std::int64_t>(), std::optional<std::int64_t>(2)}) {
    request.sampling.stream_interval = interval;
    const auto spec = make_spec({.id = 1}, request, prompt_of(3), limits);
    ASSERT_TRUE(spec) << spec.error().message;
    EXPECT_EQ((*spec)->sampling.stream_interval, interval);
  }
}

}  // namespace
}  // namespace pagoda::routing

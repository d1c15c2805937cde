#include "engine/request/sampling_params.hpp"

#include <functional>
#include <limits>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace pagoda {
namespace {

constexpr std::int64_t kModelVocab = 1000;
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInf = std::numeric_limits<double>::infinity();

using Change = std::function<void(SamplingParams&)>;

struct Case {
  std::string name;
  Change change;
  std::string param;    ///< empty: accepted
  std::string message;  ///< part of the message
};

void PrintTo(const Case& c, std::ostream* out) {
  *out << c.name;
}

class ValidateSamplingParams : public ::testing::TestWithParam<Case> {};

TEST_P(ValidateSamplingParams, AcceptsTheRangeAndRefusesTheRestByName) {
  SamplingParams params;
  GetParam().change(params);
  const Status status = validate(params, SamplingLimits{}, kModelVocab);
  if (GetParam().param.empty()) {
    EXPECT_TRUE(status) << status.error().message;
    return;
  }
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().code, ErrorCode::invalid_request);
  EXPECT_EQ(status.error().param, GetParam().param);
  EXPECT_THAT(status.error().message, ::testing::HasSubstr(GetParam().param));
  EXPECT_THAT(status.error().message, ::testing::HasSubstr(GetParam().message));
}

/// Adds one case for each value of a field: `make(value)` is the change.
template <class Value>
void add(std::vector<Case>& cases, const std::string& field, Value SamplingParams::*member,
         std::initializer_list<Value> good, std::initializer_list<Value> bad, const std::string& message) {
  int index = 0;
  const auto one = [&](Value value, const std::string& param) {
    cases.push_back({field + (param.empty() ? "_accepts_" : "_refuses_") + std::to_string(index++),
                     [member, value](SamplingParams& p) { p.*member = value; }, param, message});
  };
  for (const Value& value : good) one(value, "");
  for (const Value& value : bad) one(value, field);
}

std::vector<Case> field_cases() {
  using P = SamplingParams;
  constexpr std::int64_t kMin = std::numeric_limits<std::int64_t>::min();
  constexpr std::int64_t kMax = std::numeric_limits<std::int64_t>::max();
  std::vector<Case> cases;
  add<std::int64_t>(cases, "max_tokens", &P::max_tokens, {1, 2147483647}, {0, -3, 2147483648, kMax, kMin},
                    "between 1 and 2147483647");
  add<std::int64_t>(cases, "min_tokens", &P::min_tokens, {0, 16}, {-1, kMin}, "between 0");
  add<double>(cases, "temperature", &P::temperature, {0.0, 1e-300, 2.0, 1e6}, {-1.0, -1e-9, kNan, kInf}, "at least 0");
  add<double>(cases, "top_p", &P::top_p, {1e-9, 0.5, 1.0}, {0.0, -0.1, 1.5, kNan, kInf},
              "greater than 0 and at most 1");
  add<std::int64_t>(cases, "top_k", &P::top_k, {-1, 0, 1, 5000, kMax}, {-2, -5, kMin}, "-1 or 0");
  add<double>(cases, "min_p", &P::min_p, {0.0, 0.3, 1.0}, {-0.01, 1.01, kNan}, "between 0 and 1");
  add<std::int64_t>(cases, "n", &P::n, {1, 16384}, {0, -1, 16385, 1000000000}, "between 1 and 16384");
  add<std::optional<std::int64_t>>(cases, "best_of", &P::best_of, {std::nullopt, 1, 16384}, {0, -1, 16385, 1000000000},
                                   "between 1 and 16384");
  add<double>(cases, "presence_penalty", &P::presence_penalty, {-2.0, 0.0, 2.0}, {-2.1, 2.1, 1e9, kNan},
              "between -2 and 2");
  add<double>(cases, "frequency_penalty", &P::frequency_penalty, {-2.0, 0.0, 2.0}, {-2.1, 2.1, -1e9, kNan},
              "between -2 and 2");
  add<double>(cases, "repetition_penalty", &P::repetition_penalty, {1e-6, 1.0, 2.01, 1e9}, {0.0, -1.0, kInf, kNan},
              "a finite number greater than 0");
  add<std::optional<std::int64_t>>(cases, "logprobs", &P::logprobs, {std::nullopt, 0, 20}, {-1, 21, 10000000},
                                   "between 0 and 20");
  add<std::optional<std::int64_t>>(cases, "prompt_logprobs", &P::prompt_logprobs, {std::nullopt, 0, 20}, {-1, 21, kMin},
                                   "between 0 and 20");
  using Ids = std::optional<std::vector<std::int64_t>>;
  add<Ids>(cases, "logprob_token_ids", &P::logprob_token_ids, {std::nullopt, {{0, 999}}}, {{{1000}}, {{-1}}},
           "not in the vocabulary");
  add<Ids>(cases, "logprob_token_ids", &P::logprob_token_ids, {std::vector<std::int64_t>(128, 1)},
           {std::vector<std::int64_t>(129, 1)}, "at most 128 entries");
  add<Ids>(cases, "allowed_token_ids", &P::allowed_token_ids, {std::nullopt, {{0, 999}}}, {{{1000}}, {{-1}}},
           "not in the vocabulary");
  add<Ids>(cases, "allowed_token_ids", &P::allowed_token_ids, {}, {Ids(std::in_place)}, "is empty");
  add<std::vector<std::string>>(cases, "bad_words", &P::bad_words, {{}, {"a"}, {std::string(1024, 'x')}},
                                {{"a", ""}, {std::string(1025, 'x')}}, "between 1 and 1024 bytes");
  add<std::vector<std::string>>(cases, "bad_words", &P::bad_words, {std::vector<std::string>(1024, "x")},
                                {std::vector<std::string>(1025, "x")}, "at most 1024 strings");
  add<std::optional<std::int64_t>>(cases, "stream_interval", &P::stream_interval, {std::nullopt, 1, 1000}, {0, -1},
                                   "between 1");
  add<std::vector<std::string>>(cases, "stop", &P::stop, {{}, {"a"}, {std::string(1024, 'x')}},
                                {{"a", ""}, {std::string(1025, 'x')}}, "between 1 and 1024 bytes");
  add<std::vector<std::string>>(cases, "stop", &P::stop, {std::vector<std::string>(64, "x")},
                                {std::vector<std::string>(65, "x"), std::vector<std::string>(100000, "x")},
                                "at most 64 strings");
  add<std::vector<std::int64_t>>(cases, "stop_token_ids", &P::stop_token_ids, {{0, 999}}, {{1000}, {-1}, {1LL << 40}},
                                 "not in the vocabulary (0 to 999)");
  add<std::vector<std::int64_t>>(cases, "stop_token_ids", &P::stop_token_ids, {std::vector<std::int64_t>(1024, 1)},
                                 {std::vector<std::int64_t>(1025, 1)}, "at most 1024 entries");
  using Bias = std::vector<std::pair<std::int64_t, double>>;
  add<Bias>(cases, "logit_bias", &P::logit_bias, {{{0, -100.0}, {999, 100.0}}}, {{{99999999, 1.0}}, {{-1, 1.0}}},
            "not in the vocabulary");
  add<Bias>(cases, "logit_bias", &P::logit_bias, {}, {{{5, 100.5}}, {{5, kNan}}, {{5, -kInf}}},
            "of token 5 must be between -100 and 100");
  add<Bias>(cases, "logit_bias", &P::logit_bias, {Bias(1024, {1, 1.0})}, {Bias(1025, {1, 1.0})},
            "at most 1024 entries");
  return cases;
}

std::vector<Case> combination_cases() {
  const auto beam = [](const Change& change) {
    return [change](SamplingParams& p) {
      p.use_beam_search = true;
      p.temperature = 0.0;
      p.best_of = 4;
      change(p);
    };
  };
  return {
      {"defaults", [](SamplingParams&) {}, "", ""},
      {"min_above_max_tokens", [](SamplingParams& p) { p.min_tokens = 17; }, "min_tokens", "at most max_tokens (16)"},
      {"best_of_below_n", [](SamplingParams& p) { p.n = 3, p.best_of = 2; }, "best_of", "at least n (3), but is 2"},
      {"best_of_equal_n", [](SamplingParams& p) { p.n = 3, p.best_of = 3; }, "", ""},
      {"several_greedy_sequences", [](SamplingParams& p) { p.n = 3, p.temperature = 0.0; }, "", ""},
      {"stop_without_text", [](SamplingParams& p) { p.stop = {"x"}, p.detokenize = false; }, "stop", "detokenize"},
      {"tokens_alone", [](SamplingParams& p) { p.stop_token_ids = {1}, p.detokenize = false; }, "", ""},
      {"logprob_token_ids_of_beams", beam([](SamplingParams& p) { p.logprob_token_ids = {{1}}; }), "logprob_token_ids",
       "use_beam_search"},
      {"bans_all_that_is_allowed",
       [](SamplingParams& p) {
         p.allowed_token_ids = {{5, 6}}, p.stop_token_ids = {6, 5, 7}, p.min_tokens = 1;
       },
       "min_tokens", "all of allowed_token_ids"},
      {"bans_some_that_are_allowed",
       [](SamplingParams& p) {
         p.allowed_token_ids = {{5, 6}}, p.stop_token_ids = {5}, p.min_tokens = 1;
       },
       "", ""},
      {"length_penalty_alone", [](SamplingParams& p) { p.length_penalty = 2.0; }, "length_penalty", "use_beam_search"},
      {"length_penalty_nan", [](SamplingParams& p) { p.length_penalty = kNan; }, "length_penalty", "finite"},
      {"early_stopping_alone", [](SamplingParams& p) { p.early_stopping = EarlyStopping::yes; }, "early_stopping",
       "use_beam_search"},
      {"structured", [](SamplingParams& p) { p.structured_outputs.emplace(); }, "", ""},
      {"structured_ignore_eos", [](SamplingParams& p) { p.structured_outputs.emplace(), p.ignore_eos = true; },
       "ignore_eos", "structured_outputs"},
      {"structured_min_tokens", [](SamplingParams& p) { p.structured_outputs.emplace(), p.min_tokens = 1; },
       "min_tokens", "structured_outputs"},
      {"structured_too_long",
       [](SamplingParams& p) {
         p.structured_outputs = {GrammarKind::regex, std::string(kMaxStructuredOutputBytes + 1, 'a'), {}};
       },
       "structured_outputs", "at most 262144 bytes"},
      {"beam", beam([](SamplingParams& p) { p.length_penalty = -1.5, p.early_stopping = EarlyStopping::never; }), "",
       ""},
      {"beam_length_penalty_infinite", beam([](SamplingParams& p) { p.length_penalty = kInf; }), "length_penalty",
       "finite"},
      {"beam_temperature", beam([](SamplingParams& p) { p.temperature = 1.0; }), "temperature",
       "0 with use_beam_search"},
      {"beam_stop", beam([](SamplingParams& p) { p.stop = {"end"}; }), "stop", "use stop_token_ids"},
      {"beam_top_p", beam([](SamplingParams& p) { p.top_p = 0.9; }), "top_p", "1 with use_beam_search"},
      {"beam_top_k", beam([](SamplingParams& p) { p.top_k = 5; }), "top_k", "with use_beam_search"},
      {"beam_min_p", beam([](SamplingParams& p) { p.min_p = 0.1; }), "min_p", "0 with use_beam_search"},
      {"beam_penalties", beam([](SamplingParams& p) { p.repetition_penalty = 1.2; }), "", ""},
  };
}

const auto kCaseName = [](const auto& test_case) { return test_case.param.name; };

INSTANTIATE_TEST_SUITE_P(Combinations, ValidateSamplingParams, ::testing::ValuesIn(combination_cases()), kCaseName);

// Several groups of one field have its name, so cases are numbered.
INSTANTIATE_TEST_SUITE_P(Fields, ValidateSamplingParams, ::testing::ValuesIn(field_cases()), [](const auto& test_case) {
  return test_case.param.name + "_case" + std::to_string(test_case.index);
});

TEST(ValidateSamplingParams, KeepsToLimitsThatAConfigLowers) {
  SamplingLimits limits;
  limits.max_sequences = 2;
  limits.max_logprobs = 0;
  SamplingParams params;
  params.n = 3;
  EXPECT_EQ(validate(params, limits, kModelVocab).error().param, "n");
  params.n = 2;
  params.logprobs = 1;
  EXPECT_EQ(validate(params, limits, kModelVocab).error().param, "logprobs");
}

TEST(ValidateSamplingParams, LogprobsGoUpToTheVocabularyWhereAConfigLetsThem) {
  SamplingLimits limits;
  SamplingParams params;
  for (const std::int64_t count : {std::int64_t{-1}, std::int64_t{21}, kModelVocab}) {
    limits.max_logprobs = 20;
    params.logprobs = params.prompt_logprobs = count;
    EXPECT_EQ(validate(params, limits, kModelVocab).error().param, "logprobs");
    limits.max_logprobs = -1;
    EXPECT_TRUE(validate(params, limits, kModelVocab)) << count;
    limits.max_logprobs = kModelVocab;
    EXPECT_TRUE(validate(params, limits, kModelVocab)) << count;
  }
  params.prompt_logprobs = -2;
  EXPECT_EQ(validate(params, limits, kModelVocab).error().param, "prompt_logprobs");
  EXPECT_EQ(num_logprobs(-1, kModelVocab), kModelVocab);
  EXPECT_EQ(num_logprobs(kModelVocab + 5, kModelVocab), kModelVocab);
  EXPECT_EQ(num_logprobs(7, kModelVocab), 7);
}

TEST(ValidateSamplingParams, MinTokensMustLeaveATokenToSample) {
  constexpr std::int64_t kFewTokens = 4;
  const std::vector<TokenId> eos = {1, 3};
  SamplingParams params;
  params.min_tokens = 2;
  params.stop_token_ids = {0, 0, 0, 0};
  EXPECT_TRUE(validate(params, SamplingLimits{}, kFewTokens, eos));
  params.stop_token_ids = {0, 2};
  EXPECT_TRUE(validate(params, SamplingLimits{}, kFewTokens));
  const Status refused = validate(params, SamplingLimits{}, kFewTokens, eos);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::invalid_request);
  EXPECT_EQ(refused.error().param, "min_tokens");
  EXPECT_NE(refused.error().message.find("no token is left"), std::string::npos) << refused.error().message;
  params.ignore_eos = true;  // they are banned all the same
  EXPECT_FALSE(validate(params, SamplingLimits{}, kFewTokens, eos));
  params.min_tokens = 0;
  EXPECT_TRUE(validate(params, SamplingLimits{}, kFewTokens, eos));
}

TEST(ValidateSamplingParams, SaysTheValueAndTheRange) {
  SamplingParams params;
  params.presence_penalty = 2.5;
  EXPECT_EQ(validate(params, SamplingLimits{}, kModelVocab).error().message,
            "presence_penalty must be between -2 and 2, but is 2.5");
}

}  // namespace
}  // namespace pagoda

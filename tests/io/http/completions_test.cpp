#include "io/http/openai/completions.hpp"

#include <optional>

#include <gtest/gtest.h>

#include "io/http/prompt_echo.hpp"
#include "io/wire/json_reader.hpp"
#include "tests/io/http/writer_driver.hpp"

namespace pagoda::http::openai {
namespace {

TEST(Completions, HowManyChoicesAreWantedIsNotBelievedBeforeTheEngineAcceptsIt) {
  const auto job = parse_completion(wire::Json::parse(R"({"prompt":["a","b"],"n":1000000000000000})"), {});
  ASSERT_TRUE(job.has_value());
  EXPECT_EQ(job->requests.size(), 2);
}

TEST(Completions, WhatEveryPromptWouldCopyIsSmall) {
  const auto param_of = [](const char* name, const wire::Json& value) {
    const auto job = parse_completion({{"prompt", {"a", "b"}}, {name, value}}, {});
    return job ? "accepted" : job.error().param;
  };
  const std::string large(2000, 'x');
  EXPECT_EQ(param_of("cache_salt", large), "cache_salt");
  EXPECT_EQ(param_of("user", large), "user");
  EXPECT_EQ(param_of("stop", large), "stop");
  EXPECT_EQ(param_of("stop", std::vector<std::string>(65, "x")), "stop");
  EXPECT_EQ(param_of("stop_token_ids", std::vector<int>(1025, 1)), "stop_token_ids");
  EXPECT_EQ(param_of("cache_salt", "s"), "accepted");
}

TEST(Completions, MorePromptsThanAreEverTakenAtATimeAreTheClientsFault) {
  const wire::Json body{{"prompt", {"a", "b", "c"}}};
  EXPECT_TRUE(parse_completion(body, {}, 3).has_value());
  const auto refused = parse_completion(body, {}, 2);
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().status, 400U);
  EXPECT_EQ(refused.error().param, "prompt");
  EXPECT_EQ(refused.error().message, "prompt has 3 prompts; at most 2 are allowed (max_queued_requests)");
  EXPECT_TRUE(parse_completion({{"prompt", {1, 2, 3}}}, {}, 2).has_value());  // one, of ids
}

TEST(Completions, AnEchoHasTheTokensThatTheTruncationLeaves) {
  ModelInfo model;
  model.max_model_len = 32;
  model.max_kv_tokens = 20;
  const auto echoed = [&](std::optional<int> truncate, int max_tokens) {
    wire::Json body = {{"prompt", "a"}, {"echo", true}, {"max_tokens", max_tokens}};
    if (truncate) body["truncate_prompt_tokens"] = *truncate;
    const auto job = parse_completion(body, {});
    EXPECT_TRUE(job.has_value());
    return num_echoed_tokens(job->requests.front(), model);
  };
  EXPECT_EQ(echoed(3, 8), 3);
  EXPECT_EQ(echoed(-1, 8), 12) << "max_tokens 8 leaves 12 of the 20 tokens that the KV cache has room for";
  EXPECT_EQ(echoed(-1, 0), 19) << "the engine generates at least one token";
  EXPECT_EQ(echoed(-1, 20), std::nullopt) << "the engine refuses the request";
  EXPECT_EQ(echoed(std::nullopt, 8), std::nullopt);
}

TEST(Completions, OneTimingIsAnObjectAndThoseOfSeveralPromptsAreAList) {
  const auto timing_of = [](wire::Json prompt, const std::vector<RequestResult>& results) {
    const auto job = parse_completion({{"prompt", std::move(prompt)}, {"timing", true}}, {});
    std::string body;
    job->writer->whole(body, results);
    return wire::Json::parse(body)["timing"];
  };
  const auto result = result_of("x");
  EXPECT_EQ(timing_of("a", {result})["preemptions"], 6);
  const auto timings = timing_of({"a", "b"}, {result, result});
  ASSERT_TRUE(timings.is_array());
  EXPECT_EQ(timings[1]["preemptions"], 6);
}

}  // namespace
}  // namespace pagoda::http::openai

#include "io/http/openai/completions.hpp"

#include <gtest/gtest.h>

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

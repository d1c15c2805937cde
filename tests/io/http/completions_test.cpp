#include "io/http/openai/completions.hpp"

#include <gtest/gtest.h>

#include "io/wire/json_reader.hpp"

namespace pagoda::http::openai {
namespace {

TEST(Completions, HowManyChoicesAreWantedIsNotBelievedBeforeTheEngineAcceptsIt) {
  const auto job = parse_completion(wire::Json::parse(R"({"prompt":["a","b"],"n":1000000000000000})"), {});
  ASSERT_TRUE(job.has_value());
  EXPECT_EQ(job->requests.size(), 2);
}

}  // namespace
}  // namespace pagoda::http::openai

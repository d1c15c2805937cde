#include "io/http/ollama/keep_alive.hpp"

#include <gtest/gtest.h>

#include "engine/model_pool/model_pool_core.hpp"

namespace pagoda::http::ollama {
namespace {

std::optional<TimeUs> of(const char* value) {
  const auto body = wire::Json::parse(std::string(R"({"keep_alive": )") + value + "}");
  const auto read = read_keep_alive(body);
  EXPECT_TRUE(read.has_value()) << value;
  return read.value_or(std::nullopt);
}

TEST(KeepAlive, IsSecondsOrADuration) {
  constexpr TimeUs kSecond = 1'000'000;
  EXPECT_EQ(of("0"), 0);
  EXPECT_EQ(of("30"), 30 * kSecond);
  EXPECT_EQ(of("0.5"), kSecond / 2);
  EXPECT_EQ(of(R"("0")"), 0);
  EXPECT_EQ(of(R"("5m")"), 300 * kSecond);
  EXPECT_EQ(of(R"("1h30m")"), 5400 * kSecond);
  EXPECT_EQ(of(R"("1.5s")"), kSecond * 3 / 2);
  EXPECT_EQ(of(R"("300ms")"), 300'000);
}

TEST(KeepAlive, BelowZeroAndVeryLongAreForEver) {
  for (const char* value : {"-1", R"("-1m")", "1e12", R"("9999999h")"}) EXPECT_EQ(of(value), model_pool::kForever);
}

TEST(KeepAlive, IsNothingWhereThereIsNone) {
  EXPECT_FALSE(of("null").has_value());
  EXPECT_FALSE(read_keep_alive(wire::Json::object()).value().has_value());
}

TEST(KeepAlive, AnythingElseIsRefused) {
  for (const char* value :
       {R"("")", R"("5")", R"("m")", R"("5 m")", R"("5d")", R"("--5m")", "true", "[]", R"("1e3s")"}) {
    const auto read = read_keep_alive(wire::Json::parse(std::string(R"({"keep_alive": )") + value + "}"));
    ASSERT_FALSE(read.has_value()) << value;
    EXPECT_EQ(read.error().status, 400U);
    EXPECT_EQ(read.error().param, "keep_alive");
  }
}

}  // namespace
}  // namespace pagoda::http::ollama

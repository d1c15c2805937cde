#include "io/nearest_name.hpp"

#include <array>
#include <string>

#include <gtest/gtest.h>

namespace pagoda::io {
namespace {

TEST(NearestName, ALetterMoreLessOrElseAndASwapAreMisspellings) {
  EXPECT_TRUE(is_misspelling("temprature", "temperature"));
  EXPECT_TRUE(is_misspelling("temperatrue", "temperature"));
  EXPECT_TRUE(is_misspelling("tempreture", "temperature"));
  EXPECT_TRUE(is_misspelling("max_token", "max_tokens"));
  EXPECT_TRUE(is_misspelling("maxTokens", "max_tokens"));
  EXPECT_TRUE(is_misspelling("max-tokens", "max_tokens"));
  EXPECT_TRUE(is_misspelling("straem", "stream"));
  EXPECT_TRUE(is_misspelling("sotp", "stop"));
  EXPECT_TRUE(is_misspelling("topp", "top_p"));
  EXPECT_TRUE(is_misspelling("N", "n"));
}

TEST(NearestName, ThreeLettersAreTooManyAndShortNamesHaveFewer) {
  EXPECT_FALSE(is_misspelling("tempratr", "temperature"));
  EXPECT_FALSE(is_misspelling("temp", "temperature"));
  EXPECT_FALSE(is_misspelling("spots", "stop"));
  EXPECT_FALSE(is_misspelling("rid", "id"));
  EXPECT_FALSE(is_misspelling("m", "n"));
  EXPECT_FALSE(is_misspelling("", "n"));
  EXPECT_FALSE(is_misspelling(std::string(5000, 'a'), "stop"));
}

TEST(NearestName, TheNearestIsNamed) {
  constexpr std::array<std::string_view, 4> kKnown{"min_tokens", "max_tokens", "top_k", "stop"};
  EXPECT_EQ(nearest_name("max_tokns", kKnown), "max_tokens");
  EXPECT_EQ(nearest_name("min_tokns", kKnown), "min_tokens");
  EXPECT_EQ(nearest_name("colour", kKnown), "");
  EXPECT_EQ(nearest_name("colour", {}), "");
}

}  // namespace
}  // namespace pagoda::io

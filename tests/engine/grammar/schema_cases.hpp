#pragma once

#include <ostream>
#include <random>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "tests/engine/grammar/grammar_text.hpp"
#include "tests/engine/grammar/schema_validator.hpp"

namespace pagoda::test {

/// A schema, and texts that it accepts and refuses.
struct SchemaCase {
  const char* name;
  std::string schema;
  std::vector<std::string> accepted;
  std::vector<std::string> refused;
  int least_texts = 11;  ///< fewest of 300 random texts that must end
};

inline void PrintTo(const SchemaCase& one, std::ostream* out) {
  *out << one.name;
}
inline std::string name_of(const testing::TestParamInfo<SchemaCase>& one) {
  return one.param.name;
}

inline void expect_what_the_table_says(const SchemaCase& one) {
  const auto compiled = word_compiler()->compile(schema(one.schema));
  ASSERT_TRUE(compiled) << compiled.error().message;
  for (const auto& text : one.accepted) EXPECT_TRUE(takes(*compiled, text)) << text;
  for (const auto& text : one.refused) EXPECT_FALSE(takes(*compiled, text)) << text;
}

/// Checks that texts of random tokens are all valid, according to another reader of schemas.
inline void expect_only_valid_texts(const SchemaCase& one) {
  const auto compiled = word_compiler()->compile(schema(one.schema));
  ASSERT_TRUE(compiled) << compiled.error().message;
  const auto stated = nlohmann::json::parse(one.schema);
  std::mt19937 random(1);
  int num_texts = 0;
  for (int i = 0; i < 300; ++i) {
    const auto text = random_text(*compiled, random);
    if (!text) continue;  // it does not end within the limit
    ++num_texts;
    const auto value = nlohmann::json::parse(*text, nullptr, false);
    ASSERT_FALSE(value.is_discarded()) << *text;
    ASSERT_TRUE(is_valid(value, stated, stated)) << *text;
  }
  EXPECT_GE(num_texts, one.least_texts);
}

}  // namespace pagoda::test

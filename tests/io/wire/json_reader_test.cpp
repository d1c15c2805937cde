#include "io/wire/json_reader.hpp"

#include <string>

#include <gtest/gtest.h>

namespace pagoda::wire {
namespace {

constexpr std::size_t kDepth = 8;

std::string object_of(int num_keys, const std::string& last = {}) {
  std::string text = "{";
  for (int i = 0; i < num_keys; ++i)
    text += (i > 0 ? ",\"k" : "\"k") + std::to_string(num_keys - i) + "\":" + std::to_string(i);
  return text + last + "}";
}

TEST(JsonReader, ObjectsKeepTheOrderOfTheirKeys) {
  for (const int num_keys : {2, 15, 16, 17, 100}) {
    const auto text = object_of(num_keys);
    const auto value = read_json(text, kDepth);
    ASSERT_TRUE(value.has_value()) << value.error().message;
    EXPECT_EQ(value->dump(), text);
  }
}

TEST(JsonReader, ARepeatedKeyIsFoundInShortAndLongObjects) {
  for (const int num_keys : {1, 15, 16, 17, 18, 100, 1000}) {
    for (const int repeated : {1, num_keys}) {
      const auto value = read_json(object_of(num_keys, ",\"k" + std::to_string(repeated) + "\":0"), kDepth);
      ASSERT_FALSE(value.has_value()) << num_keys;
      EXPECT_EQ(value.error().code, WireCode::invalid_request);
      EXPECT_EQ(value.error().param, "k" + std::to_string(repeated));
    }
  }
}

TEST(JsonReader, TheSameKeyInObjectsBesideEachOtherIsFine) {
  EXPECT_TRUE(read_json(R"({"a":{"x":1},"b":{"x":[{"x":2},{"x":3}]}})", kDepth).has_value());
}

}  // namespace
}  // namespace pagoda::wire

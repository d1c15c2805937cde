#include "io/wire/json_reader.hpp"

#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "io/wire/exact_json.hpp"

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

TEST(JsonReader, IntegersKeepTheirDigitsWhereThatIsAskedFor) {
  for (const auto* text : {"0", "-7", "9007199254740993", "9223372036854775807", "9223372036854775808",
                           "18446744073709551615", "18446744073709551616", "-9223372036854775809",
                           "-170141183460469231731687303715884105728", R"([1,{"a":36893488147419103232}])"}) {
    const auto value = read_json(text, kDepth, Integers::exact);
    ASSERT_TRUE(value.has_value()) << text;
    EXPECT_EQ(json_text(*value), text);
  }
  EXPECT_EQ(read_json("18446744073709551616", kDepth)->get<double>(), 18446744073709551616.0);
  const auto exact = read_json("18446744073709551616", kDepth, Integers::exact);
  EXPECT_EQ(big_integer_digits(*exact), "18446744073709551616");
  EXPECT_EQ(to_double(*exact), 18446744073709551616.0);
  for (const auto* text : {"1.5", "1e3", "18446744073709551616.0", "2E20"})
    EXPECT_TRUE(read_json(text, kDepth, Integers::exact)->is_number_float()) << text;
}

TEST(JsonReader, ALoneSurrogateIsNamed) {
  for (const auto* text : {R"(["\ud83d"])", R"(["\ud83dx"])", R"(["\ude00"])", R"(["\ud83d\ud83d"])"}) {
    const auto value = read_json(text, kDepth);
    ASSERT_FALSE(value.has_value()) << text;
    EXPECT_EQ(value.error().code, WireCode::invalid_json);
    EXPECT_NE(value.error().message.find("surrogate"), std::string::npos) << value.error().message;
  }
  EXPECT_EQ(read_json(R"("\ud83d\ude00")", kDepth)->get<std::string>(), "\xF0\x9F\x98\x80");
  EXPECT_EQ(read_json(R"("\x")", kDepth).error().message.find("surrogate"), std::string::npos);
}

TEST(JsonReader, InACutTextTheLastOfEqualKeysCountsAlsoAmongManyKeys) {
  for (const int count : {1, 15, 16, 17, 40'000}) {  // in quadratic time the last would take many seconds
    std::string text = "{";
    Json expected = Json::object();
    for (int round = 0; round < 2; ++round) {
      for (int i = 0; i < count; ++i) {
        text += (text.size() > 1 ? ",\"k" : "\"k") + std::to_string(i) + "\":" + std::to_string(i + round);
        if (count <= 17) expected["k" + std::to_string(i)] = i + round;
      }
    }
    const Json value = read_cut_json(text + "}", kDepth);
    EXPECT_EQ(value.size(), static_cast<std::size_t>(count));
    EXPECT_EQ(value.back(), count);
    if (count <= 17) {
      EXPECT_EQ(value, expected);
    }
  }
}

TEST(JsonReader, WhatIsCutOffIsClosedWhereItEnds) {
  const std::string whole = R"({"a":"x\"\\y","b":[1,{"c":true}],"d":12,"e":null})";
  EXPECT_EQ(json_text(read_cut_json(whole, kDepth)), whole);
  EXPECT_EQ(read_cut_json("{", kDepth), Json::object());
  EXPECT_EQ(read_cut_json("  ", kDepth), nullptr);
  for (const auto& [cut, closed] : std::vector<std::pair<std::string, std::string>>{
           {R"({"city": "Par)", R"({"city":"Par"})"},
           {R"({"city": "Par\)", R"({"city":"Par"})"},
           {R"({"city": "Par\u00e)", R"({"city":"Par"})"},
           {R"({"city": "Par\u00e9)", "{\"city\":\"Par\xC3\xA9\"}"},
           {R"({"city": "a\ud83d)", R"({"city":"a"})"},
           {R"({"city": "a\ud83d\ude)", R"({"city":"a"})"},
           {R"({"city": "a\\)", R"({"city":"a\\"})"},
           {R"({"city": "Paris")", R"({"city":"Paris"})"},
           {R"({"city": "Paris", )", R"({"city":"Paris"})"},
           {R"({"city": "Paris", "da)", R"({"city":"Paris"})"},
           {R"({"city": "Paris", "days")", R"({"city":"Paris"})"},
           {R"({"city": "Paris", "days": )", R"({"city":"Paris"})"},
           {R"({"days": 12)", R"({"days":12})"},
           {R"({"days": 18446744073709551616)", R"({"days":18446744073709551616})"},
           {R"({"days": 12.)", R"({})"},
           {R"({"wet": tru)", R"({})"},
           {R"({"a": [1, {"b": "c)", R"({"a":[1,{"b":"c"}]})"},
           {R"({"a": [1, {"b": )", R"({"a":[1,{}]})"},
           {R"({"a": [[], )", R"({"a":[[]]})"},
           {R"({"a": 1, "b": 2, "a": 3})", R"({"a":3,"b":2})"}}) {
    EXPECT_EQ(json_text(read_cut_json(cut, kDepth)), closed) << cut;
  }
  // Wrong before its end.
  for (const auto* wrong : {"just words", "{'city': 'Paris'}", R"({"a": 1} more)", R"({"a" 1, "b")", R"([[[[[[[[[)"}) {
    EXPECT_EQ(read_cut_json(wrong, kDepth), nullptr) << wrong;
  }
  // Each beginning of a text can be closed.
  for (std::size_t size = 1; size < whole.size(); ++size) {
    EXPECT_TRUE(read_cut_json(whole.substr(0, size), kDepth).is_object()) << whole.substr(0, size);
  }
}

TEST(JsonReader, TheSameKeyInObjectsBesideEachOtherIsFine) {
  EXPECT_TRUE(read_json(R"({"a":{"x":1},"b":{"x":[{"x":2},{"x":3}]}})", kDepth).has_value());
}

}  // namespace
}  // namespace pagoda::wire

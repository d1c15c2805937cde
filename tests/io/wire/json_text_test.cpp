#include "io/wire/json_text.hpp"

#include <limits>
#include <random>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

namespace pagoda::wire {
namespace {

using nlohmann::json;

std::string as_json(std::string_view text) {
  std::string out;
  append_string(out, text);
  return out;
}

TEST(JsonText, StringsAreEscapedAsNlohmannJsonEscapesThem) {
  std::mt19937 random(7);
  const std::vector<std::string> pieces{"a",
                                        "\"",
                                        "\\",
                                        "\n",
                                        "\r",
                                        "\t",
                                        "\b",
                                        "\f",
                                        "\x01",
                                        "\x1f",
                                        "\x7f",
                                        "\xc3\xa9",
                                        "\xe2\x82\xac",
                                        "\xf0\x9f\x98\x80",
                                        "plain text",
                                        std::string(1, '\0')};
  for (int round = 0; round < 2000; ++round) {
    std::string text;
    for (auto n = random() % 12; n > 0; --n) text += pieces[random() % pieces.size()];
    EXPECT_EQ(as_json(text), json(text).dump());
  }
}

TEST(JsonText, BytesThatAreNotUtf8BecomeReplacementCharacters) {
  std::mt19937 random(11);
  for (int round = 0; round < 20000; ++round) {
    std::string text;
    for (auto n = random() % 8; n > 0; --n) {
      text += static_cast<char>(random() % 4 == 0 ? 'a' : 0x80 + random() % 128);
    }
    const auto out = as_json(text);
    ASSERT_NO_THROW({
      EXPECT_EQ(json::parse(out).get<std::string>(),
                json::parse(json(text).dump(-1, ' ', false, json::error_handler_t::replace)).get<std::string>());
    });
  }
  EXPECT_EQ(as_json("a\xff"), "\"a\xef\xbf\xbd\"");
  EXPECT_EQ(as_json("\xe2\x82"), "\"\xef\xbf\xbd\"");
}

TEST(JsonText, NumbersReadBackAsTheyWere) {
  for (const double value : {0.0, -0.5, 1e-9, 123456789.125, 1e300, 0.1}) {
    std::string out;
    append_number(out, value);
    EXPECT_EQ(json::parse(out).get<double>(), value);
  }
  std::string out;
  append_number(out, std::numeric_limits<double>::infinity());
  EXPECT_EQ(out, "null");
  out.clear();
  append_integer(out, std::numeric_limits<std::int64_t>::min());
  EXPECT_EQ(out, "-9223372036854775808");
  out.clear();
  append_logprob(out, -1.2345678F);
  EXPECT_EQ(json::parse(out).get<float>(), -1.2345678F);
}

}  // namespace
}  // namespace pagoda::wire

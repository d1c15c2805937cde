#include "io/chat/json_span.hpp"

#include <string>
#include <string_view>

#include <gtest/gtest.h>

namespace pagoda::chat {
namespace {

/// How much of `text` is the value; the same byte by byte.
std::size_t span(std::string_view text) {
  JsonSpan whole;
  const std::size_t size = whole.consume(text);
  JsonSpan cut;
  std::size_t cut_size = 0;
  while (cut_size < text.size() && !cut.is_over()) cut_size += cut.consume(text.substr(cut_size, 1));
  EXPECT_EQ(cut_size, size);
  EXPECT_EQ(cut.is_over(), whole.is_over());
  return size;
}

TEST(JsonSpan, EndsWithItsLastBracket) {
  EXPECT_EQ(span("{}}"), 2U);
  EXPECT_EQ(span("{\"a\": [1, {\"b\": {}}]} ]"), 21U);
  EXPECT_EQ(span("[[], [[]]],"), 10U);
}

TEST(JsonSpan, StringsHideBracketsAndQuotes) {
  EXPECT_EQ(span(R"({"}]\"}": "\\"}})"), 15U);
  EXPECT_EQ(span(R"("a}\\\"b"c)"), 9U);
}

TEST(JsonSpan, MayNeverEnd) {
  EXPECT_EQ(span("{\"a}"), 4U);
  EXPECT_EQ(span(std::string(100000, '[')), 100000U);
}

TEST(JsonSpan, EscapesAreThoseOfJson) {
  std::string out;
  append_json_escaped(out, std::string_view("a\"\\/\b\f\n\r\t\0\x1f\x7f\xC3\xA9", 14));
  EXPECT_EQ(out, "a\\\"\\\\/\\b\\f\\n\\r\\t\\u0000\\u001f\x7f\xC3\xA9");
}

}  // namespace
}  // namespace pagoda::chat

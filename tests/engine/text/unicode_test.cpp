#include "engine/text/unicode.hpp"

#include <set>

#include <gtest/gtest.h>

namespace pagoda::text {
namespace {

TEST(Utf8, FindsTheFirstByteThatIsWrong) {
  EXPECT_EQ(find_invalid_utf8("plain \u00e9 \u4e16 \U0001f999"), std::string_view::npos);
  EXPECT_EQ(find_invalid_utf8("ab\xff"), 2U);
  EXPECT_EQ(find_invalid_utf8("a\xc3"), 1U);                 // cut
  EXPECT_EQ(find_invalid_utf8("\xc0\xaf"), 0U);              // overlong
  EXPECT_EQ(find_invalid_utf8("\xe0\x80\x80"), 0U);          // overlong
  EXPECT_EQ(find_invalid_utf8("\xed\xa0\x80"), 0U);          // a surrogate
  EXPECT_EQ(find_invalid_utf8("\xf4\x90\x80\x80"), 0U);      // above U+10FFFF
  EXPECT_EQ(find_invalid_utf8("\xf0\x9f\xa6\x99\x80"), 4U);  // a lone continuation byte
}

TEST(Utf8, TellsAnUnfinishedCharacterFromABrokenOne) {
  const auto unit = [](std::string_view bytes) {
    const Utf8Unit u = first_utf8_unit(bytes);
    return std::pair(u.status, u.size);
  };
  EXPECT_EQ(unit("\xf0\x9f\xa6"), std::pair(Utf8Status::incomplete, std::size_t{3}));
  EXPECT_EQ(unit("\xf0\x9f\xa6 "), std::pair(Utf8Status::invalid, std::size_t{3}));
  EXPECT_EQ(unit("\xf0\x8f"), std::pair(Utf8Status::invalid, std::size_t{1}));
  EXPECT_EQ(unit("\x80"), std::pair(Utf8Status::invalid, std::size_t{1}));
  EXPECT_EQ(unit("\u00e9x"), std::pair(Utf8Status::complete, std::size_t{2}));
}

TEST(Utf8, ReplacesEachBrokenPieceByOneMark) {
  EXPECT_EQ(to_valid_utf8("a\xf0\x9f\xa6z\xff\xfe\xc3"), "a\uFFFDz\uFFFD\uFFFD\uFFFD");
}

TEST(Utf8, ReadsBackEveryCharacterItWrites) {
  for (char32_t character = 0; character <= 0x10FFFF; character += character < 0x3000 ? 1 : 97) {
    if (character >= 0xD800 && character <= 0xDFFF) continue;
    std::string text;
    append_utf8(text, character);
    std::size_t position = 0;
    ASSERT_EQ(next_character(text, position), character);
    ASSERT_EQ(position, text.size());
    ASSERT_EQ(find_invalid_utf8(text), std::string_view::npos);
    ASSERT_EQ(last_character_offset("x" + text), 1U);
  }
}

TEST(ByteLevelAlphabet, IsAOneToOneMapOfVisibleCharacters) {
  std::set<std::string_view> seen;
  for (int byte = 0; byte < 256; ++byte) {
    const std::string_view character = byte_level_character(static_cast<std::uint8_t>(byte));
    EXPECT_TRUE(seen.insert(character).second);
    std::size_t position = 0;
    EXPECT_EQ(byte_level_byte(next_character(character, position)), byte);
  }
  EXPECT_EQ(byte_level_character(' '), "\u0120");
  EXPECT_EQ(byte_level_character('\n'), "\u010a");
  EXPECT_EQ(byte_level_character('a'), "a");
  EXPECT_EQ(byte_level_byte(U' '), -1);
  EXPECT_EQ(byte_level_byte(0x4E16), -1);
}

TEST(CharacterClasses, KnowTheCornersThatAsciiHidesAway) {
  EXPECT_TRUE(is_white_space(0x85));
  EXPECT_TRUE(is_white_space(0x3000));
  EXPECT_FALSE(is_white_space(0x200B));
  EXPECT_FALSE(is_white_space(0x180E));
  EXPECT_TRUE(is_numeric(0xBD));
  EXPECT_TRUE(is_numeric(0x0663));
  EXPECT_TRUE(is_punctuation('+'));
  EXPECT_TRUE(is_punctuation(0x3002));
  EXPECT_FALSE(is_punctuation(0x20AC));
  EXPECT_TRUE(is_word('_'));
  EXPECT_TRUE(is_word(0x0301));
  EXPECT_FALSE(is_word('-'));
}

}  // namespace
}  // namespace pagoda::text

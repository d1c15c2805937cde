#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

/// UTF-8 and the character classes that tokenizers use. All functions are pure.
namespace pagoda::text {

inline constexpr std::string_view kReplacementCharacter = "\uFFFD";

enum class Utf8Status : std::uint8_t { complete, incomplete, invalid };

/// The unit at the start of some bytes: a whole character (complete), bytes that may become a character when more
/// arrive (incomplete), or bytes that never can (invalid: the longest such piece, which Unicode replaces by one
/// U+FFFD).
struct Utf8Unit {
  Utf8Status status;
  std::size_t size;
};
/// `bytes` must not be empty.
Utf8Unit first_utf8_unit(std::string_view bytes);

/// Returns the offset of the first byte that is not UTF-8, or npos.
std::size_t find_invalid_utf8(std::string_view text);

/// Returns the bytes with every piece that is not UTF-8 replaced by U+FFFD.
std::string to_valid_utf8(std::string_view bytes);

/// Returns the character at `position` of valid UTF-8 and moves `position` to the next character.
char32_t next_character(std::string_view text, std::size_t& position);
/// Returns the offset of the last character of valid UTF-8 that is not empty.
std::size_t last_character_offset(std::string_view text);
void append_utf8(std::string& text, char32_t character);

bool is_white_space(char32_t character);  ///< property White_Space
bool is_numeric(char32_t character);      ///< categories Nd, Nl, No
bool is_punctuation(char32_t character);  ///< ASCII punctuation and symbols, and the categories P*
bool is_word(char32_t character);         ///< \w of UTS 18: letters, marks, digits, connectors, joiners

/// Returns the visible character of a byte in GPT-2's one-to-one map.
std::string_view byte_level_character(std::uint8_t byte);
/// Returns the byte that a character stands for in that map, or -1.
int byte_level_byte(char32_t character);

}  // namespace pagoda::text

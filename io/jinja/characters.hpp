#pragma once

#include <array>
#include <string>
#include <string_view>
#include <vector>

/// Properties of characters, as in Python's str.
namespace pagoda::jinja {

bool is_space(char32_t character);       ///< strip() and split() remove it
bool is_line_break(char32_t character);  ///< splitlines() splits at it
bool is_letter(char32_t character);      ///< isalpha
bool is_decimal(char32_t character);     ///< isdecimal
bool is_digit(char32_t character);       ///< isdigit
bool is_numeric(char32_t character);     ///< isnumeric
bool is_lower(char32_t character);
bool is_upper(char32_t character);
bool is_title(char32_t character);
bool is_printable(char32_t character);  ///< repr() shows it unchanged

enum class LetterCase { lower, upper, title, folded };
/// Appends the character in that case. A capital sigma becomes the sigma inside words.
void append_case(std::string& out, char32_t character, LetterCase wanted);

/// A character whose upper or title case is longer than one character; unused elements are 0.
struct SpecialCase {
  char32_t character;
  std::array<char32_t, 3> upper;
  std::array<char32_t, 3> title;
};
/// Returns the special cases, ascending by character.
const std::vector<SpecialCase>& special_cases();

/// Returns whether the character at `offset` (of valid UTF-8) is a capital sigma at the end of a word, whose lower case
/// is the final sigma.
bool is_final_sigma(std::string_view text, std::size_t offset);

}  // namespace pagoda::jinja

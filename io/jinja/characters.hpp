#pragma once

#include <array>
#include <string>
#include <string_view>
#include <vector>

/// Characters as Python's str knows them.
namespace pagoda::jinja {

bool is_space(char32_t character);       ///< what strip() and split() take away
bool is_line_break(char32_t character);  ///< where splitlines() splits
bool is_letter(char32_t character);      ///< isalpha
bool is_decimal(char32_t character);     ///< isdecimal
bool is_digit(char32_t character);       ///< isdigit
bool is_numeric(char32_t character);     ///< isnumeric
bool is_lower(char32_t character);
bool is_upper(char32_t character);
bool is_title(char32_t character);
bool is_printable(char32_t character);  ///< repr() shows it as it is

enum class LetterCase { lower, upper, title, folded };
/// Appends the character in that case. A capital sigma gives the one inside words.
void append_case(std::string& out, char32_t character, LetterCase wanted);

/// A character whose upper or title case is longer than itself; unused places are 0.
struct SpecialCase {
  char32_t character;
  std::array<char32_t, 3> upper;
  std::array<char32_t, 3> title;
};
/// Ascending by character.
const std::vector<SpecialCase>& special_cases();

/// The capital sigma at `offset` (of valid UTF-8) ends a word, so its lower case is the final one.
bool is_final_sigma(std::string_view text, std::size_t offset);

}  // namespace pagoda::jinja

#include "io/jinja/characters.hpp"

#include <algorithm>

#include <utf8proc.h>

#include "engine/text/unicode.hpp"

namespace pagoda::jinja {
namespace {

constexpr char32_t kCapitalSigma = 0x3A3;

utf8proc_category_t category(char32_t character) {
  return utf8proc_category(static_cast<utf8proc_int32_t>(character));
}

// Superscripts and numbers in circles: digits that are not decimal.
bool is_other_digit(char32_t c) {
  return c == 0xB2 || c == 0xB3 || c == 0xB9 || c == 0x2070 || (c >= 0x2074 && c <= 0x2079) ||
         (c >= 0x2080 && c <= 0x2089) || (c >= 0x1369 && c <= 0x1371) || c == 0x19DA || (c >= 0x2460 && c <= 0x2468) ||
         (c >= 0x2474 && c <= 0x247C) || (c >= 0x2488 && c <= 0x2490) || c == 0x24EA || (c >= 0x24F5 && c <= 0x24FD) ||
         c == 0x24FF || (c >= 0x2776 && c <= 0x277E) || (c >= 0x2780 && c <= 0x2788) || (c >= 0x278A && c <= 0x2792);
}

const SpecialCase* find_special(char32_t character) {
  const auto& cases = special_cases();
  const auto found =
      std::lower_bound(cases.begin(), cases.end(), character,
                       [](const SpecialCase& entry, char32_t wanted) { return entry.character < wanted; });
  return found != cases.end() && found->character == character ? &*found : nullptr;
}

void append_all(std::string& out, const std::array<char32_t, 3>& characters) {
  for (const char32_t character : characters) {
    if (character != 0) text::append_utf8(out, character);
  }
}

bool is_cased(char32_t character) {
  return is_lower(character) || is_upper(character) || is_title(character);
}

// Returns whether a character is ignored when the end of a word is searched: marks, joiners, apostrophes and the like.
bool is_case_ignorable(char32_t c) {
  switch (category(c)) {
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_ME:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_SK:
      return true;
    default:
      return c == '\'' || c == '.' || c == ':' || c == 0xB7 || c == 0x387 || c == 0x55F || c == 0x5F4 || c == 0x2018 ||
             c == 0x2019 || c == 0x2024 || c == 0x2027 || c == 0xFE13 || c == 0xFE52 || c == 0xFE55 || c == 0xFF07 ||
             c == 0xFF0E || c == 0xFF1A;
  }
}

}  // namespace

bool is_space(char32_t c) {
  return (c >= 0x09 && c <= 0x0D) || (c >= 0x1C && c <= 0x20) || c == 0x85 || c == 0xA0 || c == 0x1680 ||
         (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F || c == 0x3000;
}

bool is_line_break(char32_t c) {
  return (c >= 0x0A && c <= 0x0D) || (c >= 0x1C && c <= 0x1E) || c == 0x85 || c == 0x2028 || c == 0x2029;
}

bool is_letter(char32_t c) {
  const utf8proc_category_t found = category(c);
  return found >= UTF8PROC_CATEGORY_LU && found <= UTF8PROC_CATEGORY_LO;
}

bool is_decimal(char32_t c) {
  return category(c) == UTF8PROC_CATEGORY_ND;
}

bool is_digit(char32_t c) {
  return is_decimal(c) || is_other_digit(c);
}

bool is_numeric(char32_t c) {
  return text::is_numeric(c);
}

bool is_lower(char32_t c) {
  const bool is_other = c == 0xAA || c == 0xBA || (c >= 0x2B0 && c <= 0x2B8) || c == 0x2C0 || c == 0x2C1 ||
                        (c >= 0x2E0 && c <= 0x2E4) || c == 0x345 || c == 0x37A || (c >= 0x1D2C && c <= 0x1D6A) ||
                        c == 0x1D78 || (c >= 0x1D9B && c <= 0x1DBF) || c == 0x2071 || c == 0x207F ||
                        (c >= 0x2090 && c <= 0x209C) || (c >= 0x2170 && c <= 0x217F) || (c >= 0x24D0 && c <= 0x24E9);
  return is_other || category(c) == UTF8PROC_CATEGORY_LL;
}

bool is_upper(char32_t c) {
  return category(c) == UTF8PROC_CATEGORY_LU || (c >= 0x2160 && c <= 0x216F) || (c >= 0x24B6 && c <= 0x24CF) ||
         (c >= 0x1F130 && c <= 0x1F189);
}

bool is_title(char32_t c) {
  return category(c) == UTF8PROC_CATEGORY_LT;
}

bool is_printable(char32_t c) {
  if (c == ' ') return true;
  switch (category(c)) {
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_CS:
    case UTF8PROC_CATEGORY_CO:
    case UTF8PROC_CATEGORY_CN:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP:
    case UTF8PROC_CATEGORY_ZS:
      return false;
    default:
      return true;
  }
}

void append_case(std::string& out, char32_t character, LetterCase wanted) {
  if (character < 0x80) {
    const bool is_capital = character >= 'A' && character <= 'Z';
    const bool is_small = character >= 'a' && character <= 'z';
    const bool wants_small = wanted == LetterCase::lower || wanted == LetterCase::folded;
    const char32_t changed = (is_capital && wants_small) || (is_small && !wants_small) ? character ^ 0x20U : character;
    out += static_cast<char>(changed);
    return;
  }
  const auto code = static_cast<utf8proc_int32_t>(character);
  if (wanted == LetterCase::folded) {
    utf8proc_int32_t folded[8];
    int boundary = 0;
    const utf8proc_ssize_t size = utf8proc_decompose_char(code, folded, 8, UTF8PROC_CASEFOLD, &boundary);
    for (utf8proc_ssize_t i = 0; i < size && i < 8; ++i) text::append_utf8(out, static_cast<char32_t>(folded[i]));
    return;
  }
  if (wanted == LetterCase::lower) {
    text::append_utf8(out, static_cast<char32_t>(utf8proc_tolower(code)));
    if (character == 0x130) text::append_utf8(out, 0x307);  // the only lower case that is two characters
    return;
  }
  if (const SpecialCase* special = find_special(character)) {
    append_all(out, wanted == LetterCase::upper ? special->upper : special->title);
    return;
  }
  text::append_utf8(
      out, static_cast<char32_t>(wanted == LetterCase::upper ? utf8proc_toupper(code) : utf8proc_totitle(code)));
}

bool is_final_sigma(std::string_view text, std::size_t offset) {
  const auto first_that_matters = [&](bool forward) -> char32_t {
    std::size_t at = offset;
    if (forward) text::next_character(text, at);
    while (forward ? at < text.size() : at > 0) {
      if (!forward) at = text::last_character_offset(text.substr(0, at));
      std::size_t next = at;
      const char32_t character = text::next_character(text, next);
      if (forward) at = next;
      if (!is_case_ignorable(character)) return character;
    }
    return 0;
  };
  std::size_t at = offset;
  if (text::next_character(text, at) != kCapitalSigma) return false;
  return is_cased(first_that_matters(false)) && !is_cased(first_that_matters(true));
}

}  // namespace pagoda::jinja

#include "io/jinja/string_literal.hpp"

#include <charconv>

#include "engine/text/unicode.hpp"
#include "io/jinja/object.hpp"

namespace pagoda::jinja {
namespace {

constexpr std::string_view kLetters = "abfnrtv\\'\"";
constexpr std::string_view kMeanings = "\a\b\f\n\r\t\v\\'\"";

// Returns the character for `size` hexadecimal digits.
char32_t hexadecimal(std::string_view digits, std::size_t size, int line) {
  std::uint32_t code = 0;
  digits = digits.substr(0, size);
  const auto parsed = std::from_chars(digits.data(), digits.data() + digits.size(), code, 16);
  if (digits.size() != size || parsed.ptr != digits.data() + size)
    throw Failure("a truncated escape in a string", false, line);
  if (code > 0x10FFFF) throw Failure("an illegal Unicode character in a string", false, line);
  if (code >= 0xD800 && code < 0xE000) throw Failure("a surrogate in a string", false, line);
  return static_cast<char32_t>(code);
}

}  // namespace

std::string unescape(std::string_view literal, int line) {
  std::string text;
  for (std::size_t i = 0; i < literal.size(); ++i) {
    if (literal[i] != '\\') {
      text += literal[i];
      continue;
    }
    const char letter = literal[++i];  // the lexer has checked that a character follows
    const std::string_view rest = literal.substr(i + 1);
    if (const std::size_t known = kLetters.find(letter); known != std::string_view::npos) {
      text += kMeanings[known];
    } else if (letter == 'x' || letter == 'u' || letter == 'U') {
      const std::size_t size = letter == 'x' ? 2 : (letter == 'u' ? 4 : 8);
      text::append_utf8(text, hexadecimal(rest, size, line));
      i += size;
    } else if (letter >= '0' && letter <= '7') {
      std::size_t size = 1;
      unsigned code = static_cast<unsigned>(letter - '0');
      for (; size < 3 && i + size < literal.size() && literal[i + size] >= '0' && literal[i + size] <= '7'; ++size) {
        code = code * 8 + static_cast<unsigned>(literal[i + size] - '0');
      }
      text::append_utf8(text, code);
      i += size - 1;
    } else if (letter == 'N') {
      throw Failure("\\N escapes are not supported", false, line);
    } else if (letter != '\n') {  // a backslash before a line end joins two lines
      text += '\\';
      text += letter;
    }
  }
  return text;
}

}  // namespace pagoda::jinja

#include "engine/grammar/lark_reader.hpp"

#include <algorithm>

#include "engine/grammar/limits.hpp"
#include "engine/text/unicode.hpp"

namespace pagoda::grammar {
namespace {

bool is_lower(char c) {
  return c >= 'a' && c <= 'z';
}
bool is_upper(char c) {
  return c >= 'A' && c <= 'Z';
}
bool is_digit(char c) {
  return c >= '0' && c <= '9';
}

}  // namespace

Error lark_error(std::int64_t line, const std::string& problem) {
  return {ErrorCode::invalid_request, "line " + std::to_string(line) + " of the grammar: " + problem};
}

bool LarkReader::take(std::string_view what) {
  if (error_ || !text_.substr(position_).starts_with(what)) return false;
  position_ += what.size();
  return true;
}

std::int64_t LarkReader::line() {
  // Counts from the place of the last call, so that a text of many lines is read once.
  const auto at = [&](std::size_t place) { return text_.begin() + static_cast<std::ptrdiff_t>(place); };
  if (position_ >= line_place_) {
    line_ += std::count(at(line_place_), at(position_), '\n');
  } else {
    line_ -= std::count(at(position_), at(line_place_), '\n');
  }
  line_place_ = position_;
  return line_;
}
void LarkReader::refuse(const std::string& what) {
  if (!error_) error_ = lark_error(line(), what);
}

void LarkReader::skip_line_ends() {
  do skip_blanks();
  while (take("\n"));
}
void LarkReader::skip_blanks() {
  while (!at_end()) {
    const char c = text_[position_];
    const std::string_view rest = text_.substr(position_);
    if (rest.starts_with("//") || c == '#') {
      position_ = std::min(text_.find('\n', position_), text_.size());
    } else if (c == ' ' || c == '\t' || c == '\r' || (c == '\n' && depth_ > 0)) {
      ++position_;
    } else {
      return;
    }
  }
}
std::string LarkReader::name() {
  const std::size_t begin = position_;
  while (!at_end()) {
    const char c = text_[position_];
    const bool is_first = position_ == begin;
    if (!(c == '_' || is_lower(c) || is_upper(c) || (!is_first && (is_digit(c) || c == '-')))) break;
    if (c == '-' && text_.substr(position_).starts_with("->")) break;
    ++position_;
  }
  return std::string(text_.substr(begin, position_ - begin));
}

std::optional<std::int64_t> LarkReader::number() {
  std::int64_t value = 0;
  const std::size_t begin = position_;
  while (!at_end() && is_digit(text_[position_])) {
    value = std::min<std::int64_t>(value * 10 + (text_[position_++] - '0'), kMaxRepetitions + 1);
  }
  return position_ == begin ? std::nullopt : std::optional(value);
}

std::string LarkReader::json_text() {
  skip_blanks();
  const std::size_t begin = position_;
  std::size_t depth = 0;
  bool in_string = false;
  for (; position_ < text_.size(); ++position_) {
    const char c = text_[position_];
    if (in_string) {
      if (c == '\\') ++position_;
      in_string = c != '"';
    } else if (c == '"') {
      in_string = true;
    } else if (c == '{' || c == '[') {
      ++depth;
    } else if (c == '}' || c == ']') {
      if (depth <= 1) return std::string(text_.substr(begin, ++position_ - begin));
      --depth;
    } else if (depth == 0) {
      break;
    }
  }
  position_ = std::min(position_, text_.size());
  refuse("a complete JSON object is expected");
  return {};
}

std::string LarkReader::quoted() {
  take("\"");
  std::string text;
  while (!next_is('"')) {
    if (at_end() || next_is('\n')) return refuse("a text without its end"), std::string();
    if (!take("\\")) {
      text::append_utf8(text, text::next_character(text_, position_));
    } else if (!escape(text)) {
      return {};
    }
  }
  take("\"");
  return text;
}

bool LarkReader::escape(std::string& text) {
  if (at_end()) return refuse("a \\ at the end"), false;
  const char letter = text_[position_];
  if (static_cast<unsigned char>(letter) >= 0x80) return refuse("an escape that is not known"), false;
  ++position_;
  constexpr std::string_view kControls = "n\nt\tr\rf\fb\bv\v";
  for (std::size_t i = 0; i < kControls.size(); i += 2) {
    if (kControls[i] == letter) return text += kControls[i + 1], true;
  }
  if (letter == 'x' || letter == 'u' || letter == 'U') return hex(letter == 'x' ? 2 : letter == 'u' ? 4 : 8, text);
  if (is_lower(letter) || is_upper(letter) || is_digit(letter)) {
    return refuse(std::string("the escape \\") + letter + " is not supported"), false;
  }
  text += letter;
  return true;
}

bool LarkReader::hex(int num_digits, std::string& text) {
  char32_t value = 0;
  for (int i = 0; i < num_digits; ++i) {
    const char c = at_end() ? '\0' : text_[position_];
    const int digit = is_digit(c)            ? c - '0'
                      : c >= 'a' && c <= 'f' ? c - 'a' + 10
                      : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                             : -1;
    if (digit < 0) return refuse("an unfinished escape"), false;
    value = value * 16 + static_cast<char32_t>(digit);
    ++position_;
  }
  const bool is_character = value > 0 && value <= 0x10FFFF && (value < 0xD800 || value > 0xDFFF);
  if (!is_character) return refuse("an escape that is not a character"), false;
  text::append_utf8(text, value);
  return true;
}

}  // namespace pagoda::grammar

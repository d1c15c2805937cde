#include "io/jinja/lexer.hpp"

#include <algorithm>
#include <array>
#include <cctype>

#include "engine/text/unicode.hpp"
#include "io/jinja/characters.hpp"
#include "io/jinja/numbers.hpp"
#include "io/jinja/string_literal.hpp"

namespace pagoda::jinja {
namespace {

constexpr std::array<std::string_view, 6> kLongOperators = {"//", "**", "==", "!=", ">=", "<="};
constexpr std::string_view kOperators = "+-/*%~[](){}><=.:|,;";

// Converts line ends to \n, and removes the one at the end.
std::string normalize_lines(std::string_view source) {
  std::string text;
  text.reserve(source.size());
  for (std::size_t i = 0; i < source.size(); ++i) {
    if (source[i] != '\r') {
      text += source[i];
    } else {
      text += '\n';
      if (i + 1 < source.size() && source[i + 1] == '\n') ++i;
    }
  }
  if (!text.empty() && text.back() == '\n') text.pop_back();
  return text;
}

bool is_name_byte(char c) {
  const auto byte = static_cast<unsigned char>(c);
  return byte >= 0x80 || std::isalnum(byte) != 0 || c == '_';
}

bool is_digit_byte(char c) {
  return c >= '0' && c <= '9';
}

class Lexer {
 public:
  explicit Lexer(std::string_view source) : source_(normalize_lines(source)) {}

  std::vector<Token> run() {
    while (at_ < source_.size()) read_data();
    push(TokenKind::end, {});
    return std::move(tokens_);
  }

 private:
  std::string_view rest() const { return std::string_view(source_).substr(at_); }
  bool starts_with(std::string_view text) const { return rest().starts_with(text); }

  void advance(std::size_t size) {
    line_ += static_cast<int>(std::ranges::count(rest().substr(0, size), '\n'));
    at_ += size;
  }

  void push(TokenKind kind, std::string text) { tokens_.push_back({kind, line_, std::move(text)}); }

  void skip_space() {
    std::size_t next = at_;
    std::size_t end = at_;
    while (next < source_.size() && is_space(text::next_character(source_, next))) end = next;
    advance(end - at_);
  }

  // Reads template text up to the next tag, and the tag.
  void read_data() {
    const std::size_t begin = at_;
    std::size_t open = source_.find('{', begin);
    while (open != std::string::npos &&
           (open + 1 == source_.size() || std::string_view("{%#").find(source_[open + 1]) == std::string_view::npos)) {
      open = source_.find('{', open + 1);
    }
    if (open == std::string::npos) {
      push_data(rest());
      advance(rest().size());
      return;
    }
    const char sign = open + 2 < source_.size() ? source_[open + 2] : ' ';
    const char type = source_[open + 1];
    push_data(strip_before_tag(std::string_view(source_).substr(begin, open - begin), sign, type != '{'));
    advance(open + 2 - begin);
    if (sign == '-' || sign == '+') advance(1);
    if (type == '#') {
      read_comment();
    } else if (type == '{') {
      push(TokenKind::variable_begin, {});
      read_expression("}}");
    } else if (!read_raw()) {
      push(TokenKind::block_begin, {});
      read_expression("%}");
    }
  }

  void push_data(std::string_view text) {
    if (!text.empty()) push(TokenKind::data, std::string(text));
  }

  // Removes white space before a tag: `-` removes all of it, a block or comment removes that of its own line.
  std::string_view strip_before_tag(std::string_view text, char sign, bool is_block) const {
    std::size_t end = text.size();
    const std::size_t line = text.rfind('\n') == std::string_view::npos ? 0 : text.rfind('\n') + 1;
    while (end > 0) {
      const std::size_t last = text::last_character_offset(text.substr(0, end));
      std::size_t next = last;
      if (!is_space(text::next_character(text, next))) break;
      end = last;
    }
    if (sign == '-') return text.substr(0, end);
    const bool starts_a_line = line > 0 || at_ == 0 || source_[at_ - 1] == '\n';
    if (sign != '+' && is_block && starts_a_line && end <= line) return text.substr(0, line);
    return text;
  }

  // Removes white space after a block or comment: `-` removes all of it; without a sign the line end is removed.
  void trim_after_tag(char sign) {
    if (sign == '-') {
      skip_space();
    } else if (sign != '+' && starts_with("\n")) {
      advance(1);
    }
  }

  void read_comment() {
    const std::size_t end = source_.find("#}", at_);
    if (end == std::string::npos) throw Failure("a comment has no end", false, line_);
    const char sign = end > at_ ? source_[end - 1] : ' ';
    advance(end + 2 - at_);
    trim_after_tag(sign);
  }

  // Reads {% raw %}: text up to {% endraw %}. Returns false, with nothing consumed, for another block.
  bool read_raw() {
    const std::size_t begin = at_;
    const int line = line_;
    if (!read_raw_begin()) {
      at_ = begin;
      line_ = line;
      return false;
    }
    for (std::size_t open = source_.find("{%", at_); open != std::string::npos; open = source_.find("{%", open + 1)) {
      std::size_t next = open + 2;
      const char sign = next < source_.size() ? source_[next] : ' ';
      if (sign == '-' || sign == '+') ++next;
      next = after_space(next);
      if (!std::string_view(source_).substr(next).starts_with("endraw")) continue;
      next = after_space(next + 6);
      const char end_sign = next < source_.size() ? source_[next] : ' ';
      if (end_sign == '-' || end_sign == '+') ++next;
      if (!std::string_view(source_).substr(next).starts_with("%}")) continue;
      push_data(strip_before_tag(std::string_view(source_).substr(at_, open - at_), sign, true));
      advance(next + 2 - at_);
      trim_after_tag(end_sign);
      return true;
    }
    throw Failure("a raw block has no end", false, line_);
  }

  bool read_raw_begin() {
    skip_space();
    if (!starts_with("raw")) return false;
    advance(3);
    skip_space();
    if (starts_with("-%}")) {
      advance(3);
      skip_space();
      return true;
    }
    if (!starts_with("%}")) return false;
    advance(2);
    return true;
  }

  std::size_t after_space(std::size_t at) const {
    std::size_t end = at;
    while (at < source_.size() && is_space(text::next_character(source_, at))) end = at;
    return end;
  }

  // Reads tokens up to the tag's end. Inside brackets this text does not end the tag.
  void read_expression(std::string_view end) {
    const bool is_block = end == "%}";
    std::string brackets;
    while (at_ < source_.size()) {
      if (brackets.empty() && read_tag_end(end, is_block)) return;
      std::size_t next = at_;
      if (is_space(text::next_character(source_, next))) {
        skip_space();
      } else if (!read_real() && !read_integer() && !read_name() && !read_string()) {
        read_operator(brackets);
      }
    }
  }

  bool read_tag_end(std::string_view end, bool is_block) {
    const char sign = source_[at_];
    const bool is_signed = sign == '-' || (is_block && sign == '+');
    if (!rest().substr(is_signed ? 1 : 0).starts_with(end)) return false;
    push(is_block ? TokenKind::block_end : TokenKind::variable_end, {});
    advance(is_signed ? 3 : 2);
    if (is_block || sign == '-') trim_after_tag(is_signed ? sign : ' ');
    return true;
  }

  // Returns the end of digits, which single underscores may separate; `at` when there are none.
  std::size_t after_digits(std::size_t at) const {
    std::size_t end = at;
    while (end < source_.size() && (is_digit_byte(source_[end]) || (source_[end] == '_' && end > at))) ++end;
    while (end > at && source_[end - 1] == '_') --end;
    // Two adjacent underscores end the number.
    const std::size_t twice = std::string_view(source_).substr(at, end - at).find("__");
    return twice == std::string_view::npos ? end : at + twice;
  }

  bool read_real() {
    if (!is_digit_byte(source_[at_]) || (at_ > 0 && source_[at_ - 1] == '.')) return false;
    const std::size_t whole = after_digits(at_);
    std::size_t end = whole;
    if (end + 1 < source_.size() && source_[end] == '.' && is_digit_byte(source_[end + 1])) end = after_digits(end + 1);
    if (end < source_.size() && (source_[end] == 'e' || source_[end] == 'E')) {
      std::size_t exponent = end + 1;
      if (exponent < source_.size() && (source_[exponent] == '+' || source_[exponent] == '-')) ++exponent;
      if (exponent < source_.size() && is_digit_byte(source_[exponent])) end = after_digits(exponent);
    }
    if (end == whole) return false;
    push(TokenKind::real, {});
    tokens_.back().real = parse_real(rest().substr(0, end - at_)).value_or(0.0);
    advance(end - at_);
    return true;
  }

  bool read_integer() {
    if (!is_digit_byte(source_[at_])) return false;
    std::size_t end = after_integer();
    push(TokenKind::integer, {});
    try {
      tokens_.back().integer = parse_integer(rest().substr(0, end - at_), 0).value_or(0);
    } catch (const Failure& failure) {
      throw Failure(failure.message, false, line_);
    }
    advance(end - at_);
    return true;
  }

  std::size_t after_integer() const {
    if (source_[at_] != '0') return after_digits(at_);
    const auto after_run = [&](std::string_view digits) {
      std::size_t end = at_ + 2;
      while (end < source_.size()) {
        const std::size_t digit = source_[end] == '_' && end + 1 < source_.size() ? end + 1 : end;
        if (digits.find(source_[digit]) == std::string_view::npos) break;
        end = digit + 1;
      }
      return end > at_ + 2 ? end : at_ + 1;
    };
    switch (at_ + 1 < source_.size() ? source_[at_ + 1] : ' ') {
      case 'b':
      case 'B':
        return after_run("01");
      case 'o':
      case 'O':
        return after_run("01234567");
      case 'x':
      case 'X':
        return after_run("0123456789abcdefABCDEF");
      default:
        break;
    }
    std::size_t end = at_ + 1;  // only zeros may follow
    while (end < source_.size() &&
           (source_[end] == '0' || (source_[end] == '_' && end + 1 < source_.size() && source_[end + 1] == '0'))) {
      ++end;
    }
    return end;
  }

  bool read_name() {
    std::size_t end = at_;
    while (end < source_.size() && is_name_byte(source_[end])) ++end;
    if (end == at_) return false;
    push(TokenKind::name, source_.substr(at_, end - at_));
    advance(end - at_);
    return true;
  }

  bool read_string() {
    const char quote = source_[at_];
    if (quote != '\'' && quote != '"') return false;
    std::size_t end = at_ + 1;
    while (end < source_.size() && source_[end] != quote) end += source_[end] == '\\' ? 2 : 1;
    if (end >= source_.size()) throw Failure(std::string("unexpected char '") + quote + "'", false, line_);
    push(TokenKind::string, unescape(rest().substr(1, end - at_ - 1), line_));
    advance(end + 1 - at_);
    return true;
  }

  void read_operator(std::string& brackets) {
    for (const std::string_view op : kLongOperators) {
      if (!starts_with(op)) continue;
      push(TokenKind::op, std::string(op));
      advance(2);
      return;
    }
    const char op = source_[at_];
    if (kOperators.find(op) == std::string_view::npos) {
      std::size_t next = at_;
      text::next_character(source_, next);
      throw Failure("unexpected char '" + source_.substr(at_, next - at_) + "'", false, line_);
    }
    if (op == '(') brackets += ')';
    if (op == '[') brackets += ']';
    if (op == '{') brackets += '}';
    if (op == ')' || op == ']' || op == '}') {
      if (brackets.empty()) throw Failure(std::string("unexpected '") + op + "'", false, line_);
      if (brackets.back() != op) {
        throw Failure(std::string("unexpected '") + op + "', expected '" + brackets.back() + "'", false, line_);
      }
      brackets.pop_back();
    }
    push(TokenKind::op, std::string(1, op));
    advance(1);
  }

  std::string source_;
  std::size_t at_ = 0;
  int line_ = 1;
  std::vector<Token> tokens_;
};

}  // namespace

std::vector<Token> tokenize(std::string_view source) {
  return Lexer(source).run();
}

}  // namespace pagoda::jinja

#include "io/chat/python_arguments.hpp"

#include <algorithm>
#include <array>
#include <utility>

namespace pagoda::chat {
namespace {

constexpr std::string_view kNoKey = " \t\n\r\f\v=,:()[]{}\"'";

struct Word {
  std::string_view python;
  std::string_view json;
};
constexpr std::array kWords{Word{"True", "true"}, Word{"False", "false"}, Word{"None", "null"},
                            Word{"true", "true"}, Word{"false", "false"}, Word{"null", "null"}};

struct Escape {
  char python;
  std::string_view json;
};
constexpr std::array kEscapes{Escape{'\\', "\\\\"},   Escape{'\'', "'"},  Escape{'"', "\\\""},   Escape{'\n', ""},
                              Escape{'a', "\\u0007"}, Escape{'b', "\\b"}, Escape{'f', "\\f"},    Escape{'n', "\\n"},
                              Escape{'r', "\\r"},     Escape{'t', "\\t"}, Escape{'v', "\\u000b"}};

bool is_python_digit(char byte) {
  return byte >= '0' && byte <= '9';
}

bool is_python_hex(char byte) {
  return is_python_digit(byte) || (byte >= 'a' && byte <= 'f') || (byte >= 'A' && byte <= 'F');
}

std::size_t num_hex_digits(char escape) {
  return escape == 'x' ? 2 : escape == 'u' ? 4 : escape == 'U' ? 8 : 0;
}

std::string four_hex_digits(std::uint32_t unit) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string text = "\\u";
  for (std::uint32_t shift = 16; shift > 0; shift -= 4) text += kDigits[(unit >> (shift - 4)) & 15U];
  return text;
}

/// Returns the character with this code as JSON escapes; empty where Unicode has no such character.
std::string unicode_escape(std::string_view digits) {
  std::uint32_t character = 0;
  for (const char digit : digits) {
    const auto value = static_cast<std::uint32_t>(is_python_digit(digit) ? digit - '0' : (digit | 0x20) - 'a' + 10);
    character = character << 4U | value;
  }
  if (character <= 0xFFFF) return four_hex_digits(character);
  if (character > 0x10FFFF) return {};
  character -= 0x10000;
  return four_hex_digits(0xD800 + (character >> 10U)) + four_hex_digits(0xDC00 + (character & 0x3FFU));
}

}  // namespace

ReadResult PythonArguments::consume(std::string_view text, std::string& json) {
  return consume_steps(text, is_over_, [&](std::string_view rest) { return step(rest, json); });
}

ReadResult PythonArguments::step(std::string_view text, std::string& json) {
  if (text.empty()) return {};
  switch (state_) {
    case State::key:
      return consume_key(text, json);
    case State::value:
      return consume_value(text, json);
    case State::number:
      return consume_number(text, json);
    case State::string:
      return consume_string(text, json);
    case State::after_value:
      return consume_after_value(text, json);
  }
  return {ReadResult::State::mismatch, 0};
}

ReadResult PythonArguments::end(std::string& json) {
  json += has_key_ ? "}" : "{}";
  is_over_ = true;
  return {ReadResult::State::over, 0};
}

// Nothing is consumed before the equals sign: without it, the text is no key.
ReadResult PythonArguments::consume_key(std::string_view text, std::string& json) {
  if (const std::size_t white = leading_white(text)) return {ReadResult::State::over, white};
  const std::size_t size = std::min(text.find_first_of(kNoKey), text.size());
  if (size == 0) return end(json);
  const std::size_t equals = size + leading_white(text.substr(size));
  if (equals > kMaxNameBytes) return {ReadResult::State::mismatch, 0};
  if (equals == text.size()) return {};
  if (text[equals] != '=') return {ReadResult::State::mismatch, 0};

  json += std::exchange(has_key_, true) ? ", \"" : "{\"";
  append_json_escaped(json, text.substr(0, size));
  json += "\": ";
  state_ = State::value;
  return {ReadResult::State::over, equals + 1};
}

void PythonArguments::begin_value(std::string& json) {
  if (std::exchange(owes_comma_, false)) json += ", ";
}

void PythonArguments::open(Container container, std::string& json) {
  begin_value(json);
  json += container == Container::dict_key ? '{' : '[';
  open_.push_back(container);
}

bool PythonArguments::closes(char byte) const {
  if (open_.empty()) return false;
  const Container container = open_.back();
  return byte == (container == Container::list ? ']' : container == Container::tuple ? ')' : '}');
}

void PythonArguments::close(std::string& json) {
  const bool is_dict = open_.back() == Container::dict_key || open_.back() == Container::dict_value;
  json += is_dict ? '}' : ']';
  open_.pop_back();
  owes_comma_ = false;
  state_ = State::after_value;
}

ReadResult PythonArguments::consume_value(std::string_view text, std::string& json) {
  const char byte = text.front();
  if (is_white(byte)) return {ReadResult::State::over, leading_white(text)};
  const bool may_close = open_.empty() || open_.back() != Container::dict_value;
  if (may_close && closes(byte)) {
    close(json);
    return {ReadResult::State::over, 1};
  }
  if (byte == '"' || byte == '\'') {
    begin_value(json);
    json += '"';
    quote_ = byte;
    state_ = State::string;
    return {ReadResult::State::over, 1};
  }
  if (is_python_digit(byte) || byte == '-' || byte == '+' || byte == '.') {
    begin_value(json);
    if (is_dict_key()) json += '"';
    last_ = 0;
    has_point_ = has_exponent_ = false;
    state_ = State::number;
    return {ReadResult::State::over, 0};
  }
  const bool is_open = byte == '[' || byte == '(' || byte == '{';
  if (!is_open) return consume_word(text, json);
  if (is_dict_key()) return {ReadResult::State::mismatch, 0};
  open(byte == '[' ? Container::list : byte == '(' ? Container::tuple : Container::dict_key, json);
  return {ReadResult::State::over, 1};
}

ReadResult PythonArguments::consume_word(std::string_view text, std::string& json) {
  for (const Word& word : kWords) {
    const Match match = begins_with(text, word.python);
    if (match == Match::maybe) return {};
    if (match == Match::no) continue;
    begin_value(json);
    if (is_dict_key()) json += '"';
    json += word.json;
    if (is_dict_key()) json += '"';
    state_ = State::after_value;
    return {ReadResult::State::over, word.python.size()};
  }
  return {ReadResult::State::mismatch, 0};
}

// JSON demands digits on both sides of a point, and allows neither a leading plus nor "_" between digits.
ReadResult PythonArguments::consume_number(std::string_view text, std::string& json) {
  const auto write = [&](char byte) {
    json += byte;
    last_ = byte;
  };
  const bool has_digit = is_python_digit(last_);
  const bool may_sign = last_ == 0 || last_ == 'e';
  const char byte = text.front();
  if (is_python_digit(byte)) {
    write(byte);
  } else if (may_sign && (byte == '-' || byte == '+')) {
    if (byte == '-' || last_ == 'e') json += byte;
    last_ = '-';
  } else if (byte == '.' && !has_point_ && !has_exponent_) {
    if (!has_digit) write('0');
    write('.');
    has_point_ = true;
  } else if ((byte == 'e' || byte == 'E') && !has_exponent_ && (has_digit || last_ == '.')) {
    if (last_ == '.') write('0');
    write('e');
    has_exponent_ = true;
  } else if (byte != '_' || !has_digit) {
    if (last_ == '.') write('0');
    if (!is_python_digit(last_)) return {ReadResult::State::mismatch, 0};
    if (is_dict_key()) json += '"';
    state_ = State::after_value;
    return {ReadResult::State::over, 0};
  }
  return {ReadResult::State::over, 1};
}

ReadResult PythonArguments::consume_string(std::string_view text, std::string& json) {
  const char ends[] = {quote_, '\\'};
  const std::size_t size = std::min(text.find_first_of(std::string_view(ends, 2)), text.size());
  if (size > 0) {
    append_json_escaped(json, text.substr(0, size));
    return {ReadResult::State::over, size};
  }
  if (text.front() == '\\') return consume_escape(text, json);
  json += '"';
  state_ = State::after_value;
  return {ReadResult::State::over, 1};
}

// As in Python, a backslash before any other character stands for itself.
ReadResult PythonArguments::consume_escape(std::string_view text, std::string& json) {
  if (text.size() < 2) return {};
  const auto* const found = std::ranges::find(kEscapes, text[1], &Escape::python);
  if (found != kEscapes.end()) {
    json += found->json;
    return {ReadResult::State::over, 2};
  }
  const std::size_t num_digits = num_hex_digits(text[1]);
  if (num_digits > 0) {
    const std::string_view digits = text.substr(2, num_digits);
    const bool is_hex = std::ranges::all_of(digits, is_python_hex);
    if (is_hex && digits.size() < num_digits) return {};
    const std::string escape = is_hex ? unicode_escape(digits) : "";
    if (!escape.empty()) {
      json += escape;
      return {ReadResult::State::over, 2 + num_digits};
    }
  }
  json += "\\\\";
  return {ReadResult::State::over, 1};
}

ReadResult PythonArguments::consume_after_value(std::string_view text, std::string& json) {
  const char byte = text.front();
  if (is_white(byte)) return {ReadResult::State::over, leading_white(text)};
  if (open_.empty()) {
    if (byte != ',') return end(json);
    state_ = State::key;
    return {ReadResult::State::over, 1};
  }
  if (is_dict_key()) {
    if (byte != ':') return {ReadResult::State::mismatch, 0};
    json += ": ";
    open_.back() = Container::dict_value;
    state_ = State::value;
    return {ReadResult::State::over, 1};
  }
  if (closes(byte)) {
    close(json);
    return {ReadResult::State::over, 1};
  }
  if (byte != ',') return {ReadResult::State::mismatch, 0};
  if (open_.back() == Container::dict_value) open_.back() = Container::dict_key;
  owes_comma_ = true;
  state_ = State::value;
  return {ReadResult::State::over, 1};
}

}  // namespace pagoda::chat

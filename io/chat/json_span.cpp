#include "io/chat/json_span.hpp"

namespace pagoda::chat {
namespace {

constexpr std::string_view kHexDigits = "0123456789abcdef";

/// Returns the character after the backslash; 0 where there is no short form.
char short_escape(char byte) {
  switch (byte) {
    case '"':
    case '\\':
      return byte;
    case '\b':
      return 'b';
    case '\f':
      return 'f';
    case '\n':
      return 'n';
    case '\r':
      return 'r';
    case '\t':
      return 't';
    default:
      return 0;
  }
}

}  // namespace

std::size_t JsonSpan::consume(std::string_view piece) {
  std::size_t at = 0;
  while (at < piece.size() && !is_over_) {
    const char byte = piece[at++];
    if (is_escaped_) {
      is_escaped_ = false;
    } else if (in_string_) {
      if (byte == '\\') is_escaped_ = true;
      if (byte == '"') in_string_ = false;
    } else if (byte == '"') {
      in_string_ = true;
    } else if (byte == '{' || byte == '[') {
      ++depth_;
    } else if (byte == '}' || byte == ']') {
      --depth_;
    }
    is_over_ = depth_ == 0 && !in_string_;
  }
  return at;
}

void append_json_escaped(std::string& out, std::string_view text) {
  for (const char byte : text) {
    if (const char escape = short_escape(byte)) {
      out += '\\';
      out += escape;
    } else if (static_cast<unsigned char>(byte) < 0x20) {
      out += "\\u00";
      out += kHexDigits[static_cast<unsigned char>(byte) >> 4U];
      out += kHexDigits[static_cast<unsigned char>(byte) & 15U];
    } else {
      out += byte;
    }
  }
}

}  // namespace pagoda::chat

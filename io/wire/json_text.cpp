#include "io/wire/json_text.hpp"

#include <array>
#include <charconv>
#include <cmath>

namespace pagoda::wire {
namespace {

/// Returns the number of bytes of the UTF-8 sequence at the front of `text` if it is valid. Otherwise returns 0 and
/// sets `skip` to the length of the maximal invalid piece (Unicode 3.9, table 3-7).
std::size_t utf8_sequence_length(std::string_view text, std::size_t& skip) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned lead = byte(0);
  skip = 1;
  std::size_t length = 0;
  unsigned low = 0x80;
  unsigned high = 0xBF;
  if (lead < 0x80) return 1;
  if (lead >= 0xC2 && lead <= 0xDF) {
    length = 2;
  } else if (lead >= 0xE0 && lead <= 0xEF) {
    length = 3;
    if (lead == 0xE0) low = 0xA0;
    if (lead == 0xED) high = 0x9F;
  } else if (lead >= 0xF0 && lead <= 0xF4) {
    length = 4;
    if (lead == 0xF0) low = 0x90;
    if (lead == 0xF4) high = 0x8F;
  } else {
    return 0;
  }
  for (std::size_t i = 1; i < length; ++i) {
    if (i >= text.size() || byte(i) < low || byte(i) > high) {
      skip = i;
      return 0;
    }
    low = 0x80;
    high = 0xBF;
  }
  return length;
}

void append_escape(std::string& out, char c) {
  switch (c) {
    case '"':
      out += "\\\"";
      return;
    case '\\':
      out += "\\\\";
      return;
    case '\b':
      out += "\\b";
      return;
    case '\f':
      out += "\\f";
      return;
    case '\n':
      out += "\\n";
      return;
    case '\r':
      out += "\\r";
      return;
    case '\t':
      out += "\\t";
      return;
    default:
      break;
  }
  constexpr std::string_view kHex = "0123456789abcdef";
  out += "\\u00";
  out += kHex[static_cast<unsigned char>(c) >> 4U];
  out += kHex[static_cast<unsigned char>(c) & 0xFU];
}

template <class T>
void append_chars(std::string& out, T value) {
  std::array<char, 40> buffer;
  const auto end = std::to_chars(buffer.data(), buffer.data() + buffer.size(), value).ptr;
  out.append(buffer.data(), end);
}

}  // namespace

void append_string(std::string& out, std::string_view text) {
  out += '"';
  std::size_t start = 0;
  std::size_t i = 0;
  const auto flush = [&] { out.append(text.substr(start, i - start)); };
  while (i < text.size()) {
    const auto c = static_cast<unsigned char>(text[i]);
    if (c >= 0x80) {
      std::size_t skip = 0;
      if (const auto length = utf8_sequence_length(text.substr(i), skip); length != 0) {
        i += length;
        continue;
      }
      flush();
      out += "\xEF\xBF\xBD";
      i += skip;
      start = i;
    } else if (c < 0x20 || c == '"' || c == '\\') {
      flush();
      append_escape(out, text[i]);
      ++i;
      start = i;
    } else {
      ++i;
    }
  }
  flush();
  out += '"';
}

void append_integer(std::string& out, std::int64_t value) {
  append_chars(out, value);
}

void append_number(std::string& out, double value) {
  if (std::isfinite(value)) {
    append_chars(out, value);
  } else {
    out += "null";
  }
}

void append_logprob(std::string& out, float value) {
  constexpr float kLowest = -9999.0F;
  append_chars(out, value > kLowest ? value : kLowest);
}

}  // namespace pagoda::wire

#include "io/json_lines/other_protocol.hpp"

#include <algorithm>

namespace pagoda::json_lines {
namespace {

constexpr std::string_view kHandshakeRecord =
    "\x16\x03";  // type of a handshake record, and the first byte of every version

bool is_method_char(char c) {
  return (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') ||
         std::string_view("!#$%&'*+-.^_`|~").find(c) != std::string_view::npos;
}

/// Returns whether the line is METHOD SP TARGET SP HTTP/VERSION. No JSON object begins so.
bool is_request_line(std::string_view line) {
  const auto method_end = line.find(' ');
  const auto target_end = line.rfind(' ');
  if (method_end == std::string_view::npos || method_end == 0 || method_end == target_end) return false;
  return line.substr(target_end + 1).starts_with("HTTP/") &&
         std::ranges::all_of(line.substr(0, method_end), is_method_char);
}

}  // namespace

std::string_view other_protocol(std::string_view line) {
  if (is_request_line(line)) return "HTTP";
  if (line.starts_with(kHandshakeRecord)) return "TLS";
  return {};
}

}  // namespace pagoda::json_lines

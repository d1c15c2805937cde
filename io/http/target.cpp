#include "io/http/target.hpp"

#include <algorithm>
#include <optional>

namespace pagoda::http {
namespace {

int hex_value(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

bool is_control(char c) {
  return static_cast<unsigned char>(c) < 0x20 || c == 0x7f;
}

enum class Plus : bool { itself, space };

/// Returns nullopt if an escape is invalid.
std::optional<std::string> decode(std::string_view text, Plus plus) {
  std::string out;
  out.reserve(text.size());
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '+' && plus == Plus::space) {
      out += ' ';
    } else if (text[i] != '%') {
      out += text[i];
    } else {
      const int high = i + 2 < text.size() ? hex_value(text[i + 1]) : -1;
      const int low = i + 2 < text.size() ? hex_value(text[i + 2]) : -1;
      if (high < 0 || low < 0) return {};
      out += static_cast<char>(high * 16 + low);
      i += 2;
    }
  }
  return out;
}

bool has_dot_piece(std::string_view path) {
  while (!path.empty()) {
    const auto slash = std::min(path.find('/'), path.size());
    const auto piece = path.substr(0, slash);
    if (piece == "." || piece == "..") return true;
    path.remove_prefix(std::min(slash + 1, path.size()));
  }
  return false;
}

std::string_view without_origin(std::string_view target) {
  for (const std::string_view scheme : {"http://", "https://"}) {
    if (target.substr(0, scheme.size()) != scheme) continue;
    const auto path = target.find_first_of("/?", scheme.size());
    return path == std::string_view::npos ? "/" : target.substr(path);
  }
  return target;
}

bool append_query(Pairs& query, std::string_view text) {
  while (!text.empty()) {
    const auto end = std::min(text.find('&'), text.size());
    const auto pair = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (pair.empty()) continue;
    const auto equals = std::min(pair.find('='), pair.size());
    auto name = decode(pair.substr(0, equals), Plus::space);
    auto value = decode(pair.substr(std::min(equals + 1, pair.size())), Plus::space);
    if (!name || !value) return false;
    query.emplace_back(std::move(*name), std::move(*value));
  }
  return true;
}

}  // namespace

Result<Target> parse_target(std::string_view target) {
  const auto refuse = [](const char* why) { return fail(ErrorCode::invalid_request, why); };
  target = without_origin(target);
  const auto fragment = target.find('#');
  if (fragment != std::string_view::npos) return refuse("the request's target contains a #");
  const auto question = std::min(target.find('?'), target.size());
  Target out;
  out.raw_path = target.substr(0, question);
  if (out.raw_path.empty() && question < target.size()) out.raw_path = "/";  // http://host?query
  if (out.raw_path.empty() || out.raw_path.front() != '/') return refuse("the request's target is not a path");
  auto path = decode(out.raw_path, Plus::itself);
  if (!path) return refuse("the path contains a % that is not followed by two hex digits");
  if (std::any_of(path->begin(), path->end(), is_control)) return refuse("the path contains control bytes");
  if (has_dot_piece(*path)) return refuse("the path contains . or .. between slashes");
  out.path = std::move(*path);
  if (!append_query(out.query, target.substr(std::min(question + 1, target.size())))) {
    return refuse("the query contains a % that is not followed by two hex digits");
  }
  return out;
}

std::string percent_decoded(std::string_view text) {
  return decode(text, Plus::itself).value_or(std::string());
}

}  // namespace pagoda::http

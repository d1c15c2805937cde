#include "io/http/routes.hpp"

#include <algorithm>
#include <optional>
#include <utility>

#include "io/http/target.hpp"
#include "kernels/result.hpp"

namespace pagoda::http {
namespace {

/// Splits a path at slashes: "/a/b" becomes "a", "b"; "/" becomes "".
std::vector<std::string> pieces_of(std::string_view path) {
  std::vector<std::string> pieces;
  while (!path.empty()) {
    path.remove_prefix(1);
    const auto slash = std::min(path.find('/'), path.size());
    pieces.emplace_back(path.substr(0, slash));
    path.remove_prefix(slash);
  }
  return pieces;
}

bool is_parameter(std::string_view piece) {
  return piece.size() > 2 && piece.front() == '{' && piece.back() == '}';
}

bool takes_the_rest(std::string_view piece) {
  return is_parameter(piece) && piece[piece.size() - 2] == '*';
}

std::string joined(const std::vector<std::string>& pieces, std::size_t first) {
  std::string out;
  for (std::size_t i = first; i < pieces.size(); ++i) out += (i > first ? "/" : "") + pieces[i];
  return out;
}

/// Returns the values of the pattern's parameters, or nullopt if the path does not match.
std::optional<Pairs> fit(const std::vector<std::string>& pattern, const std::vector<std::string>& path) {
  const bool open_end = takes_the_rest(pattern.back());
  if (open_end ? path.size() < pattern.size() : path.size() != pattern.size()) return {};
  Pairs params;
  for (std::size_t i = 0; i < pattern.size(); ++i) {
    const std::string_view piece = pattern[i];
    if (!is_parameter(piece)) {
      if (percent_decoded(path[i]) != piece) return {};
      continue;
    }
    const bool rest = takes_the_rest(piece);
    auto value = percent_decoded(rest ? joined(path, i) : path[i]);
    if (value.empty()) return {};
    params.emplace_back(piece.substr(1, piece.size() - (rest ? 3 : 2)), std::move(value));
  }
  return params;
}

}  // namespace

void Routes::add(Verb verb, std::string_view pattern, Access access, Handler handler, ConnectionQuota quota) {
  PAGODA_ASSERT(!pattern.empty() && pattern.front() == '/', "a route's pattern starts with a slash");
  routes_.push_back({verb, std::string(pattern), pieces_of(pattern), access, std::move(handler), quota});
}

Routes::Match Routes::match(Verb verb, std::string_view raw_path) const {
  const auto path = pieces_of(raw_path);
  Match match;
  const auto allow = [&](Verb other) {
    if (std::find(match.allowed.begin(), match.allowed.end(), other) == match.allowed.end()) {
      match.allowed.push_back(other);
    }
  };
  for (const auto& route : routes_) {
    auto params = fit(route.pattern, path);
    if (!params) continue;
    if (route.verb == verb || (route.verb == Verb::get && verb == Verb::head)) {
      return {&route, std::move(*params), {}};
    }
    allow(route.verb);
    if (route.verb == Verb::get) allow(Verb::head);
  }
  return match;
}

}  // namespace pagoda::http

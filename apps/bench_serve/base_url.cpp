#include "apps/bench_serve/base_url.hpp"

#include <algorithm>

#include "io/serving/listen_address.hpp"

namespace pagoda::bench_serve {
namespace {

constexpr std::string_view kHttp = "http://";
constexpr std::string_view kHttps = "https://";

auto refuse_url(std::string_view url) {
  return fail(ErrorCode::bad_config,
              "base_url must be an address such as http://127.0.0.1:8000, not \"" + std::string(url) + "\"",
              "base_url");
}

bool is_url_character(char c) {
  constexpr std::string_view kNever = "#?@\"<>\\^`{|}";
  return c > ' ' && c < '\x7f' && kNever.find(c) == std::string_view::npos;
}

/// Returns the path without slashes at its end, and without a final /v1, which routes have themselves.
std::string path_of(std::string_view path) {
  constexpr std::string_view kVersion = "/v1";
  const auto cut = [&] { path = path.substr(0, path.find_last_not_of('/') + 1); };
  cut();
  if (path.ends_with(kVersion)) path.remove_suffix(kVersion.size());
  cut();
  return std::string(path);
}

}  // namespace

Result<BaseUrl> BaseUrl::parse(std::string_view url) {
  BaseUrl base{.host = {}, .port = {}, .path = {}, .is_https = url.starts_with(kHttps)};
  if (!base.is_https && !url.starts_with(kHttp)) return refuse_url(url);
  if (!std::ranges::all_of(url, is_url_character)) return refuse_url(url);
  const auto place = url.substr(base.is_https ? kHttps.size() : kHttp.size());
  const auto slash = std::min(place.find('/'), place.size());
  base.path = path_of(place.substr(slash));
  std::string authority(place.substr(0, slash));
  const bool has_port = authority.rfind(':') != std::string::npos && authority.back() != ']';
  if (!has_port) authority += base.is_https ? ":443" : ":80";
  const auto address = serving::parse_listen(authority, "base_url");
  if (!address || address->host.empty() || address->port == 0) return refuse_url(url);
  base.host = address->host;
  base.port = std::to_string(address->port);
  return base;
}

std::string BaseUrl::authority() const {
  const bool is_v6 = host.find(':') != std::string::npos;
  return (is_v6 ? "[" + host + "]" : host) + ":" + port;
}

}  // namespace pagoda::bench_serve

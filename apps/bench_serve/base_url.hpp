#pragma once

#include <string>
#include <string_view>

#include "kernels/result.hpp"

namespace pagoda::bench_serve {

/// Address of a server, parsed from a URL such as http://127.0.0.1:8000 or https://example.org/some/path.
struct BaseUrl {
  std::string host;  ///< an IPv6 address without its brackets
  std::string port;
  std::string path;  ///< the path before /v1; empty, or begins with a slash and ends without one
  bool is_https = false;

  /// Error: bad_config, param base_url.
  static Result<BaseUrl> parse(std::string_view url);

  /// Returns the value of the Host header.
  std::string authority() const;
};

}  // namespace pagoda::bench_serve

#pragma once

#include <string>
#include <string_view>

#include "io/http/request.hpp"
#include "kernels/result.hpp"

namespace pagoda::http {

/// The parts of a request's target.
struct Target {
  std::string raw_path;  ///< percent-encoded, with valid escapes only
  std::string path;
  Pairs query;
};

/// Parses a target. Also accepts http://host/path, the form for proxies. Refuses targets that are not a path, escapes
/// without two hex digits, control bytes (also as escapes), and the pieces . and .. between slashes. Error:
/// invalid_request.
Result<Target> parse_target(std::string_view target);

/// Decodes a text whose escapes are valid.
std::string percent_decoded(std::string_view text);

}  // namespace pagoda::http

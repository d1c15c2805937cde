#pragma once

#include <string>
#include <string_view>

#include "io/http/request.hpp"
#include "kernels/result.hpp"

namespace pagoda::http {

/// A request's target, taken apart.
struct Target {
  std::string raw_path;  ///< still percent-encoded; every escape in it is good
  std::string path;
  Pairs query;
};

/// Takes http://host/path too, as sent to a proxy. Refused: what is no path, escapes that are not two hex digits,
/// control bytes also when they are escaped, and pieces . and .. that would lead out of a folder. Error:
/// invalid_request.
Result<Target> parse_target(std::string_view target);

/// Of text whose escapes are good.
std::string percent_decoded(std::string_view text);

}  // namespace pagoda::http

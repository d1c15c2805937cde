#pragma once

#include <cstdint>
#include <ostream>  // verb.hpp of Boost 1.74 needs it and does not say so
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <boost/beast/http/verb.hpp>

#include "io/serving/telemetry.hpp"
#include "io/serving/tenant.hpp"

namespace pagoda::http {

using Verb = boost::beast::http::verb;

/// Names and values in the order they came in.
using Pairs = std::vector<std::pair<std::string, std::string>>;

/// The first value of that name; empty when there is none.
inline std::string_view find(const Pairs& pairs, std::string_view name) {
  for (const auto& [key, value] : pairs) {
    if (key == name) return value;
  }
  return {};
}

/// One whole request that has passed the transport's checks: its route exists, its key is good, its body is in.
struct Request {
  Verb verb = Verb::get;  ///< the client's own: HEAD is handed to the handler of GET
  std::string path;       ///< percent-decoded, without the query; no control bytes, no . or .. between slashes
  Pairs params;           ///< what stood in the places of the route's pattern, percent-decoded
  Pairs query;            ///< percent-decoded, + is a space
  Pairs headers;          ///< names in lower case; values without the spaces around them
  std::string body;       ///< application/json by its Content-Type, or empty; not looked into
  serving::MeteredBytes body_bytes = {};  ///< goes with the body
  std::string request_id;   ///< the client's X-Request-Id where it is 1 to 128 visible ASCII characters, else a new one
  std::string own_id = {};  ///< an id of the server's alone, for what has no right to the client's
  std::int64_t created = 0;                 ///< when it came, in seconds since 1970
  serving::SharedPrincipal principal = {};  ///< of the key that it came with; null: none that is known

  bool is_admin() const { return principal && principal->is_admin(); }
  std::string_view header(std::string_view lower_case_name) const { return find(headers, lower_case_name); }
};

}  // namespace pagoda::http

#pragma once

#include <cstdint>
#include <ostream>  // verb.hpp of Boost 1.74 needs it but does not include it
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <boost/beast/http/verb.hpp>

#include "io/serving/telemetry.hpp"
#include "io/serving/tenant.hpp"

namespace pagoda::http {

using Verb = boost::beast::http::verb;

/// Names and values in the order in which they came.
using Pairs = std::vector<std::pair<std::string, std::string>>;

/// Returns the first value with that name, or an empty text if there is none.
inline std::string_view find_value(const Pairs& pairs, std::string_view name) {
  for (const auto& [key, value] : pairs) {
    if (key == name) return value;
  }
  return {};
}

/// A complete request that has passed the transport's checks: its route exists, its key is accepted, its body has
/// arrived.
struct Request {
  Verb verb = Verb::get;  ///< the client's verb; HEAD is passed to the handler of GET
  std::string path;       ///< percent-decoded, without the query; no control bytes, no . or .. between slashes
  Pairs params;           ///< values of the route pattern's parameters, percent-decoded
  Pairs query;            ///< percent-decoded, + is a space
  Pairs headers;          ///< names in lower case; values without the spaces around them
  std::string body;  ///< not parsed yet; application/json by its Content-Type (Ollama's clients may omit it), or empty
  serving::MeteredBytes body_bytes = {};  ///< metric of the body's bytes; lives as long as the body
  std::string request_id;    ///< the client's X-Request-Id if it is 1 to 128 visible ASCII characters, or else a new id
  std::string own_id = {};   ///< id that the server has made; used where the client's id must not be used
  std::int64_t created = 0;  ///< time of arrival, in seconds since 1970
  serving::SharedPrincipal principal = {};  ///< principal of the request's key; null: no known key

  bool is_admin() const { return principal && principal->is_admin(); }
  std::string_view header(std::string_view lower_case_name) const { return find_value(headers, lower_case_name); }
};

}  // namespace pagoda::http

#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "io/http/exchange.hpp"
#include "io/http/request.hpp"

namespace pagoda::http {

/// Keys with which a route may be called.
enum class Access : std::uint8_t {
  open,     ///< no key, even if the server has API keys
  key,      ///< an API key or an admin key, if the server has API keys
  admin,    ///< an admin key
  monitor,  ///< an admin key, if the server has keys of either kind
};

/// Connections that a route may use.
enum class ConnectionQuota : std::uint8_t {
  ordinary,
  spare,  ///< also connections beyond the limit, so that a full server can be monitored
};

/// Handler of a route. Called on the I/O thread, which it must not block for long. May answer at once, or keep the
/// exchange and answer later. If the handler throws, or the exchange is destroyed without an answer, the answer
/// is 500; an answer that has begun is cut off.
using Handler = std::function<void(std::shared_ptr<Exchange>, Request)>;

/// The routes of a server. Filled before the server starts, then only read.
class Routes {
 public:
  struct Route {
    Verb verb;
    std::string path;                  ///< the pattern as it was added
    std::vector<std::string> pattern;  ///< pieces of the pattern between slashes
    Access access;
    Handler handler;
    ConnectionQuota quota = ConnectionQuota::ordinary;
  };
  /// Result of a match. `route` is null if no route matches. In this case `allowed` holds the verbs of the routes that
  /// match the path; it is empty if the path is unknown.
  struct Match {
    const Route* route = nullptr;
    Pairs params;
    std::vector<Verb> allowed;
  };

  /// Adds a route. A piece of `pattern` may be {name}, which matches one piece that is not empty. The last piece may be
  /// {name*}, which matches the rest of the path, including slashes, and is not empty. If several routes match, the
  /// first added wins. The handler of GET also serves HEAD: the body that it writes is left out.
  void add(Verb verb, std::string_view pattern, Access access, Handler handler,
           ConnectionQuota quota = ConnectionQuota::ordinary);

  /// Finds the route of a path. `raw_path` is percent-encoded, so that %2F is not a slash, and must be valid (see
  /// parse_target).
  Match match(Verb verb, std::string_view raw_path) const;

  const std::vector<Route>& all() const { return routes_; }

 private:
  std::vector<Route> routes_;
};

}  // namespace pagoda::http

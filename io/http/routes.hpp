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

/// Who may call a route.
enum class Access : std::uint8_t {
  everybody,  ///< also without a key where keys are asked for
  key,        ///< with an API key or an admin key, where the server has API keys
  admin,      ///< with an admin key
  watcher,    ///< with an admin key, where the server has keys of either kind
};

/// Where a route's connections have room.
enum class Room : std::uint8_t {
  ordinary,
  spare,  ///< also in the places beyond the limit, so that a server that is full can be watched
};

/// Called on the I/O thread, which it must not hold up; it may answer at once or keep the exchange and answer later. An
/// exchange that is dropped without an answer, and an exception, become a 500.
using Handler = std::function<void(std::shared_ptr<Exchange>, Request)>;

/// What is served. Filled before the server starts, then only read.
class Routes {
 public:
  struct Route {
    Verb verb;
    std::string path;                  ///< the pattern as it was added
    std::vector<std::string> pattern;  ///< its pieces between slashes
    Access access;
    Handler handler;
    Room room = Room::ordinary;
  };
  /// What a path is: `route` is null when there is none, and then `allowed` holds the verbs that the path does have,
  /// none when it is unknown.
  struct Match {
    const Route* route = nullptr;
    Pairs params;
    std::vector<Verb> allowed;
  };

  /// `pattern` is a path whose pieces may be {name}, which stands for one piece that is not empty, or last {name*},
  /// which stands for all that is left, slashes too, and is not empty. Of several that match, the first added wins. The
  /// handler of GET serves HEAD too: what it writes as the body is left out.
  void add(Verb verb, std::string_view pattern, Access access, Handler handler, Room room = Room::ordinary);

  /// `raw_path` is still percent-encoded, so that %2F is no slash; it decodes (see parse_target).
  Match match(Verb verb, std::string_view raw_path) const;

  const std::vector<Route>& all() const { return routes_; }

 private:
  std::vector<Route> routes_;
};

}  // namespace pagoda::http

#pragma once

#include <chrono>

namespace pagoda::serving {

/// The program's interface to a server of clients, whatever its protocol. Thread-safe.
class FrontEnd {
 public:
  virtual ~FrontEnd() = default;

  /// The first step of a drain: live requests continue, and new work is refused, by the router too. Connections are
  /// still accepted, so that a client that connects gets the reason.
  virtual void begin_drain() = 0;

  /// Stops accepting connections. Closes each connection once its pending output is sent, at the latest after `grace`,
  /// and joins the I/O thread. Requests that are still live are aborted.
  virtual void shutdown(std::chrono::milliseconds grace) = 0;
};

}  // namespace pagoda::serving

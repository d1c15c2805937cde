#pragma once

#include <chrono>

namespace pagoda::serving {

/// A server of clients, whatever it speaks, as the program that runs it sees it. Thread-safe.
class FrontEnd {
 public:
  virtual ~FrontEnd() = default;

  /// No new connections from now on; those that there are go on. The first step of a drain: the router refuses their
  /// new requests meanwhile.
  virtual void stop_accepting() = 0;

  /// Ends every connection once it has sent what it has for its client, at the latest after `grace`, and joins the I/O
  /// thread. Requests that are still live are aborted.
  virtual void shutdown(std::chrono::milliseconds grace) = 0;
};

}  // namespace pagoda::serving

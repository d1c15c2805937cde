#pragma once

#include <chrono>

namespace pagoda::serving {

/// A server of clients, whatever it speaks, as the program that runs it sees it. Thread-safe.
class FrontEnd {
 public:
  virtual ~FrontEnd() = default;

  /// The first step of a drain: what is live goes on, and new work is refused, by the router too. Connections are still
  /// taken, so that whoever comes hears why.
  virtual void begin_drain() = 0;

  /// Takes no new connections. Ends every connection once it has sent what it has for its client, at the latest after
  /// `grace`, and joins the I/O thread. Requests that are still live are aborted.
  virtual void shutdown(std::chrono::milliseconds grace) = 0;
};

}  // namespace pagoda::serving

#pragma once

/// The TCP server of the JSON-lines protocol: sockets on one I/O thread, one bridge actor per connection.

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>

#include "actors/interfaces.hpp"
#include "io/json_lines/server_config.hpp"
#include "kernels/result.hpp"

namespace pagoda::json_lines {

/// Serves the engine behind a request router. Thread-safe. The actor system must outlive it.
class Server {
 public:
  /// Binds, listens and starts the I/O thread. Errors: bad_config (the first that config.validate() finds), io_failed
  /// (address in use, unknown host).
  static Result<std::unique_ptr<Server>> start(caf::actor_system& system, actors::RequestRouterActor router,
                                               ServerConfig config);

  /// As shutdown without grace.
  ~Server();

  std::uint16_t port() const;
  /// HOST:PORT as bound, with the real port.
  const std::string& address() const;

  /// No new connections from now on; those that there are go on. The first step of a drain: the router refuses their
  /// new requests meanwhile.
  void stop_accepting();

  /// Ends every connection once it has sent what it has for its client, at the latest after `grace`, and joins the I/O
  /// thread. Requests that are still live are aborted.
  void shutdown(std::chrono::milliseconds grace);

  std::size_t num_connections() const;

 private:
  class State;
  explicit Server(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace pagoda::json_lines

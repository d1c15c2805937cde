#pragma once

/// The HTTP server: sockets on one I/O thread, one request at a time on a connection. What it knows of HTTP ends where
/// a route's handler begins.

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include <boost/asio/io_context.hpp>

#include "io/http/routes.hpp"
#include "io/http/server_config.hpp"
#include "io/serving/telemetry.hpp"
#include "kernels/result.hpp"

namespace pagoda::http {

/// Thread-safe. Whatever the handlers refer to must outlive it, or at least its shutdown.
class Server {
 public:
  /// Binds, listens and starts the I/O thread. Errors: bad_config (the first that config.validate() finds; an address
  /// beyond this machine without API keys; certificate and key do not fit), io_failed (address in use, unknown host, a
  /// file that cannot be read).
  /// `telemetry` hears of connections and requests. Unless it `lets_in`, clients that come wait until let_in.
  static Result<std::unique_ptr<Server>> start(ServerConfig config, Routes routes,
                                               std::shared_ptr<serving::Telemetry> telemetry = {}, bool lets_in = true);
  void let_in();

  /// As shutdown without grace.
  ~Server();

  std::uint16_t port() const;
  /// HOST:PORT as bound, with the real port.
  const std::string& address() const;
  bool is_tls() const;
  const Routes& routes() const;

  /// The I/O thread's. Lives as long as the server, but runs nothing after shutdown.
  boost::asio::io_context& io();

  /// From now on every answer is its connection's last, and says so. New connections are still taken.
  void begin_drain();

  /// Takes no new connections. Closes idle connections at once and the others as soon as their answer is complete, at
  /// the latest after `grace`, and joins the I/O thread. Answers that are not complete by then are cut off: their
  /// on_closed is called.
  void shutdown(std::chrono::milliseconds grace);

  std::size_t num_connections() const;

 private:
  class State;
  explicit Server(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace pagoda::http

#pragma once

/// The HTTP server: sockets on one I/O thread, one request at a time on a connection. Everything after the head and
/// body of a request is the task of the route's handler.

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

/// Thread-safe. Objects that the handlers refer to must outlive the server, or at least its shutdown.
class Server {
 public:
  /// Binds, listens and starts the I/O thread. Errors: bad_config (the first error of config.validate(); an address
  /// that other machines can reach without API keys; certificate and key do not match), io_failed (address in use,
  /// unknown host, a file that cannot be read). Connections and requests are reported to `telemetry`. If `lets_in` is
  /// false, new clients wait until let_in is called.
  static Result<std::unique_ptr<Server>> start(ServerConfig config, Routes routes,
                                               std::shared_ptr<serving::Telemetry> telemetry = {}, bool lets_in = true);
  void let_in();

  /// Calls shutdown(0).
  ~Server();

  std::uint16_t port() const;
  /// Returns HOST:PORT as bound, with the real port.
  const std::string& address() const;
  bool is_tls() const;
  const Routes& routes() const;

  /// Returns the io_context of the I/O thread. It lives as long as the server and runs nothing after shutdown.
  boost::asio::io_context& io();

  /// Makes every answer from now on the last on its connection; its headers announce this. New connections are still
  /// accepted.
  void begin_drain();

  /// Stops accepting connections. Closes idle connections at once and the others when their answer is complete, at the
  /// latest after `grace`. Then joins the I/O thread. Answers that are not complete by then are cut off, and their
  /// on_closed is called.
  void shutdown(std::chrono::milliseconds grace);

  std::size_t num_connections() const;

 private:
  class State;
  explicit Server(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace pagoda::http

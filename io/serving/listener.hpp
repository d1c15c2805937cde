#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>

#include "kernels/result.hpp"

namespace pagoda::serving {

/// Accepts connections on one address. Call all functions but `open` on the I/O thread.
class Listener {
 public:
  using OnSocket = std::function<void(boost::asio::ip::tcp::socket)>;

  explicit Listener(boost::asio::io_context& io) : acceptor_(io), pause_(io) {}

  /// Binds and listens. `key` is the config key of the address. Errors: bad_config; io_failed (address in use, unknown
  /// host).
  Status open(const std::string& listen, const char* key);

  /// Checks that the address may be served: an address that other machines can reach needs keys, or `allowed`; in the
  /// second case a warning is logged. `what` names the server in messages. Error: bad_config with the param
  /// allow_unauthenticated.
  Status check_exposure(const char* what, bool has_keys, bool allowed) const;

  /// Passes every new socket to `on_socket`, non-blocking and with its options set. If the process has no free file
  /// descriptors or no memory, accepting is tried again after a pause. If `on_socket` throws, its connection is
  /// dropped.
  void accept(OnSocket on_socket);

  /// Stops accepting connections.
  void close();

  std::uint16_t port() const { return port_; }
  /// Returns HOST:PORT as bound, with the real port.
  const std::string& address() const { return address_; }

 private:
  void accept_next();
  void take_one(boost::system::error_code error);
  void accept_later();
  void start_connection(boost::asio::ip::tcp::socket socket);

  boost::asio::ip::tcp::acceptor acceptor_;
  boost::asio::steady_timer pause_;
  OnSocket on_socket_;
  std::uint16_t port_ = 0;
  std::string address_;
  bool is_loopback_ = false;
};

}  // namespace pagoda::serving

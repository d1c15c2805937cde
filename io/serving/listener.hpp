#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>

#include "kernels/result.hpp"

namespace pagoda::serving {

/// Accepts the connections of one address. Everything but `open` runs on the I/O thread.
class Listener {
 public:
  using OnSocket = std::function<void(boost::asio::ip::tcp::socket)>;

  explicit Listener(boost::asio::io_context& io) : acceptor_(io), pause_(io) {}

  /// Binds and listens. `key` is the config's name of the address. Errors: bad_config, io_failed (in use, unknown
  /// host).
  Status open(const std::string& listen, const char* key);

  /// Whether so open an address may be served: one beyond this machine without keys only where that is `allowed`, and
  /// then it is logged. `what` is served, for messages. Error: bad_config, whose param is allow_unauthenticated.
  Status check_exposure(const char* what, bool has_keys, bool allowed) const;

  /// Hands every new socket to `on_socket`, non-blocking and with its options set. When the process has no files left
  /// or memory left it tries again after a pause; a connection that `on_socket` throws at is dropped.
  void accept(OnSocket on_socket);

  /// No new connections from now on.
  void close();

  std::uint16_t port() const { return port_; }
  /// HOST:PORT as bound, with the real port.
  const std::string& address() const { return address_; }

 private:
  void accept_next();
  void take_one(boost::system::error_code error);
  void accept_later();
  void welcome(boost::asio::ip::tcp::socket socket);

  boost::asio::ip::tcp::acceptor acceptor_;
  boost::asio::steady_timer pause_;
  OnSocket on_socket_;
  std::uint16_t port_ = 0;
  std::string address_;
  bool is_loopback_ = false;
};

}  // namespace pagoda::serving

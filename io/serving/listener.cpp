#include "io/serving/listener.hpp"

#include <chrono>
#include <new>

#include <netinet/tcp.h>
#include <spdlog/spdlog.h>
#include <sys/socket.h>

#include "io/serving/listen_address.hpp"

namespace pagoda::serving {
namespace {

using boost::asio::ip::tcp;
using boost::system::error_code;

/// Pause after a failed accept, for example when there are no free file descriptors.
constexpr auto kAcceptPause = std::chrono::milliseconds(100);

/// Sets options: small writes are sent at once, and a vanished client machine is detected within about a minute.
void set_options(tcp::socket& socket) {
  error_code ignored;
  socket.set_option(tcp::no_delay(true), ignored);
  socket.set_option(boost::asio::socket_base::keep_alive(true), ignored);
  const auto set = [&](int option, int value) {
    ::setsockopt(socket.native_handle(), IPPROTO_TCP, option, &value, sizeof value);
  };
  set(TCP_KEEPIDLE, 30);
  set(TCP_KEEPINTVL, 10);
  set(TCP_KEEPCNT, 3);
  socket.non_blocking(true, ignored);
}

}  // namespace

Status Listener::open(const std::string& listen, const char* key) {
  const auto refuse = [&](const error_code& error) {
    return fail(ErrorCode::io_failed, "cannot listen on " + listen + ": " + error.message(), key);
  };
  const auto wanted = parse_listen(listen, key);
  if (!wanted) return fail(wanted.error());
  error_code error;
  tcp::resolver resolver(acceptor_.get_executor());
  const auto found = resolver.resolve(wanted->host, std::to_string(wanted->port), tcp::resolver::passive, error);
  if (error) return refuse(error);
  const tcp::endpoint endpoint = *found.begin();
  acceptor_.open(endpoint.protocol(), error);
  if (!error) acceptor_.set_option(tcp::acceptor::reuse_address(true), error);
  if (!error) acceptor_.bind(endpoint, error);
  if (!error) acceptor_.listen(boost::asio::socket_base::max_listen_connections, error);
  if (!error) acceptor_.non_blocking(true, error);
  if (error) return refuse(error);
  port_ = acceptor_.local_endpoint().port();
  const bool is_v6 = wanted->host.find(':') != std::string::npos;
  address_ = (is_v6 ? "[" + wanted->host + "]" : wanted->host) + ":" + std::to_string(port_);
  is_loopback_ = endpoint.address().is_loopback();
  return {};
}

Status Listener::check_exposure(const char* what, bool has_keys, bool allowed) const {
  if (is_loopback_ || has_keys) return {};
  if (!allowed) {
    return fail(
        ErrorCode::bad_config,
        std::string(what) + ": " + address_ +
            " can be reached from beyond this machine: give --keys-file or --api-key-file with a user's key, or "
            "--allow-unauthenticated if every client may use it",
        "allow_unauthenticated");
  }
  spdlog::warn("{} on {}, beyond this machine, without API keys: every client that reaches it can use it", what,
               address_);
  return {};
}

void Listener::accept(OnSocket on_socket) {
  on_socket_ = std::move(on_socket);
  accept_next();
}

void Listener::accept_next() {
  try {
    acceptor_.async_wait(tcp::acceptor::wait_read, [this](const error_code& error) {
      if (acceptor_.is_open()) take_one(error);
    });
  } catch (const std::bad_alloc&) {
    spdlog::warn("cannot accept a connection: out of memory");
    accept_later();
  }
}

/// Accepts the connection synchronously. If an asynchronous accept failed to allocate memory, its operation would end,
/// and no later connection would be accepted.
void Listener::take_one(error_code error) {
  tcp::socket socket(acceptor_.get_executor());
  try {
    if (!error) acceptor_.accept(socket, error);
  } catch (const std::bad_alloc&) {
    error = boost::asio::error::no_memory;
  }
  if (error == boost::asio::error::would_block) return accept_next();  // the client has closed already
  if (error) {
    spdlog::warn("cannot accept a connection: {}", error.message());
    return accept_later();
  }
  start_connection(std::move(socket));
  accept_next();
}

void Listener::start_connection(tcp::socket socket) {
  try {
    set_options(socket);
    on_socket_(std::move(socket));
  } catch (const std::exception& error) {
    spdlog::error("a connection is dropped: {}", error.what());
  }
}

void Listener::accept_later() {
  pause_.expires_after(kAcceptPause);
  pause_.async_wait([this](const error_code& cancelled) {
    if (!cancelled) accept_next();
  });
}

void Listener::close() {
  error_code ignored;
  acceptor_.close(ignored);
  pause_.cancel();
}

}  // namespace pagoda::serving

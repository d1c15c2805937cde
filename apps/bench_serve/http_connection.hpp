#pragma once

#include <chrono>
#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/ssl/context.hpp>

#include "apps/bench_serve/base_url.hpp"
#include "kernels/result.hpp"

namespace pagoda::bench_serve {

/// A server's address, looked up, and how to reach it.
struct Server {
  BaseUrl url;
  boost::asio::ip::tcp::resolver::results_type endpoints;
  std::unique_ptr<boost::asio::ssl::context> tls;  ///< null for plain HTTP
  std::chrono::milliseconds timeout{};             ///< for one exchange, from its begin to its end

  /// `verify`: whether a certificate must be good. Error: io_failed (no such host), param base_url.
  static Result<Server> find(const BaseUrl& url, bool verify, std::chrono::milliseconds timeout);
};

struct ReplyHead {
  int status = 0;
  bool has_retry_after = false;
};

/// Whoever takes an answer. Calls come in this order, on the thread of the I/O; it may close the connection in any of
/// them, and hears nothing more then.
class ReplySink {
 public:
  virtual ~ReplySink() = default;
  /// The request has been written.
  virtual void on_sent() = 0;
  virtual void on_head(const ReplyHead& head) = 0;
  virtual void on_body(std::string_view bytes) = 0;
  /// `error`: what went wrong; empty when the answer is complete.
  virtual void on_end(const std::string& error) = 0;
};

/// How fast an answer is read.
struct Pace {
  double bytes_per_s = 0;  ///< 0: as it comes
  bool never = false;      ///< nothing is read at all
};

/// One HTTP/1.1 connection, for one exchange after the other. An exchange on one that the server has closed meanwhile
/// begins anew on another. For one thread.
class HttpConnection {
 public:
  virtual ~HttpConnection() = default;

  /// `request` is all its bytes; `sink` outlives the exchange.
  virtual void exchange(std::string request, Pace pace, ReplySink& sink) = 0;
  /// Once an exchange has ended: whether another may follow.
  virtual bool is_reusable() const = 0;
  /// Its sink hears nothing more.
  virtual void close() = 0;
};

/// Connects with its first exchange. `server` must outlive it.
std::shared_ptr<HttpConnection> make_connection(boost::asio::io_context& io, Server& server);

}  // namespace pagoda::bench_serve

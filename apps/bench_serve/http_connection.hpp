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

/// The resolved address of a server, and how to connect to it.
struct Server {
  BaseUrl url;
  boost::asio::ip::tcp::resolver::results_type endpoints;
  std::unique_ptr<boost::asio::ssl::context> tls;  ///< null for plain HTTP
  std::chrono::milliseconds timeout{};             ///< limit of one exchange, from its beginning to its end

  /// Resolves the host. `verify`: whether the certificate must be valid. Errors: io_failed (no such host), param
  /// base_url.
  static Result<Server> find(const BaseUrl& url, bool verify, std::chrono::milliseconds timeout);
};

struct ReplyHead {
  int status = 0;
  bool has_retry_after = false;
};

/// Receives an answer. Calls come in the order of declaration, on the I/O thread. The sink may close the connection in
/// any of them; then no further call comes.
class ReplySink {
 public:
  virtual ~ReplySink() = default;
  /// Called when the request has been written.
  virtual void on_sent() = 0;
  virtual void on_head(const ReplyHead& head) = 0;
  virtual void on_body(std::string_view bytes) = 0;
  /// `error`: why the exchange failed; empty when the answer is complete.
  virtual void on_end(const std::string& error) = 0;
};

/// Speed at which an answer is read.
struct Pace {
  double bytes_per_s = 0;  ///< 0: no limit
  bool never = false;      ///< whether nothing is read at all
};

/// One HTTP/1.1 connection, for exchanges one after the other. If the server has closed the connection between
/// exchanges, the next exchange opens another. Not thread-safe.
class HttpConnection {
 public:
  virtual ~HttpConnection() = default;

  /// Starts an exchange. `request` has all bytes of the request. `sink` must outlive the exchange.
  virtual void exchange(std::string request, Pace pace, ReplySink& sink) = 0;
  /// Returns whether another exchange may follow. Call when an exchange has ended.
  virtual bool is_reusable() const = 0;
  /// Closes the connection. The sink gets no further calls.
  virtual void close() = 0;
};

/// Makes a connection, which connects with its first exchange. `server` must outlive it.
std::shared_ptr<HttpConnection> make_connection(boost::asio::io_context& io, Server& server);

}  // namespace pagoda::bench_serve

#include "apps/bench_serve/http_connection.hpp"

#include <array>
#include <cstdint>
#include <limits>
#include <optional>
#include <type_traits>
#include <utility>

#include <boost/asio/connect.hpp>
#include <boost/asio/ssl/host_name_verification.hpp>
#include <boost/asio/ssl/stream.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/write.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/core/tcp_stream.hpp>
#include <boost/beast/http.hpp>
#include <boost/beast/ssl.hpp>

namespace pagoda::bench_serve {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = boost::beast::http;
using boost::system::error_code;

using PlainStream = beast::tcp_stream;
using TlsStream = beast::ssl_stream<beast::tcp_stream>;

constexpr std::size_t kReadBytes = 16384;
constexpr std::size_t kSlowReadBytes = 256;
constexpr std::size_t kSlowBufferBytes = 4096;  // holds the head of an answer

template <class Stream>
class Connection final : public HttpConnection, public std::enable_shared_from_this<Connection<Stream>> {
 public:
  Connection(asio::io_context& io, Server& server) : io_(io), server_(server), pause_(io) {}

  void exchange(std::string request, Pace pace, ReplySink& sink) override {
    request_ = std::move(request);
    pace_ = pace;
    sink_ = &sink;
    parser_.reset();
    was_used_ = stream_ != nullptr;
    if (was_used_) {
      tcp().expires_after(server_.timeout);
      write();
    } else {
      connect();
    }
  }

  bool is_reusable() const override { return stream_ != nullptr; }

  void close() override {
    sink_ = nullptr;
    pause_.cancel();
    if (!stream_) return;
    error_code ignored;
    tcp().socket().close(ignored);
    stream_.reset();
  }

 private:
  static constexpr bool kIsTls = std::is_same_v<Stream, TlsStream>;

  beast::tcp_stream& tcp() { return beast::get_lowest_layer(*stream_); }

  /// Returns a handler that continues with `step`. It reports an error instead, and does nothing if the stream is not
  /// used any more.
  template <class Step>
  auto then(const char* what, Step step) {
    return [self = this->shared_from_this(), stream = stream_, what, step](const error_code& error, const auto&...) {
      if (self->sink_ == nullptr || stream != self->stream_) return;
      if (error) return self->failed(what, error);
      step(*self);
    };
  }

  void connect() {
    buffer_.clear();
    if constexpr (kIsTls) {
      stream_ = std::make_shared<Stream>(beast::tcp_stream(io_), *server_.tls);
      // Calls what SSL_set_tlsext_host_name calls; that macro has an old-style cast.
      ::SSL_ctrl(stream_->native_handle(), SSL_CTRL_SET_TLSEXT_HOSTNAME, TLSEXT_NAMETYPE_host_name,
                 server_.url.host.data());
    } else {
      stream_ = std::make_shared<Stream>(io_);
    }
    tcp().expires_after(server_.timeout);
    tcp().async_connect(server_.endpoints, then("cannot connect", [](Connection& self) { self.connected(); }));
  }

  void connected() {
    error_code ignored;
    tcp().socket().set_option(asio::ip::tcp::no_delay(true), ignored);
    if (is_slow()) tcp().socket().set_option(asio::socket_base::receive_buffer_size(kSlowBufferBytes), ignored);
    if constexpr (kIsTls) {
      stream_->async_handshake(asio::ssl::stream_base::client,
                               then("no TLS connection", [](Connection& self) { self.write(); }));
    } else {
      write();
    }
  }

  void write() {
    asio::async_write(*stream_, asio::buffer(request_), then("cannot send", [](Connection& self) { self.written(); }));
  }

  void written() {
    sink_->on_sent();
    if (sink_ == nullptr || pace_.never) return;
    parser_.emplace();
    parser_->body_limit(std::numeric_limits<std::uint64_t>::max());
    buffer_.max_size(is_slow() ? kSlowBufferBytes : std::size_t{1} << 20);
    http::async_read_header(*stream_, buffer_, *parser_, then("no answer", [](Connection& self) { self.read_head(); }));
  }

  void read_head() {
    const auto& head = parser_->get();
    sink_->on_head({.status = static_cast<int>(head.result_int()),
                    .has_retry_after = head.find(http::field::retry_after) != head.end()});
    if (sink_ != nullptr) read_body();
  }

  void read_body() {
    if (parser_->is_done()) return finish();
    parser_->get().body().data = body_.data();
    parser_->get().body().size = is_slow() ? kSlowReadBytes : body_.size();
    http::async_read_some(
        *stream_, buffer_, *parser_,
        [self = this->shared_from_this(), stream = stream_](error_code error, std::size_t) {
          if (self->sink_ == nullptr || stream != self->stream_) return;
          if (error == http::error::need_buffer) error = {};
          if (error) return self->failed("the answer is cut off", error);
          self->has_read((self->is_slow() ? kSlowReadBytes : kReadBytes) - self->parser_->get().body().size);
        });
  }

  void has_read(std::size_t bytes) {
    if (bytes > 0) sink_->on_body({body_.data(), bytes});
    if (sink_ == nullptr) return;
    if (!is_slow() || bytes == 0) return read_body();
    const std::chrono::duration<double> pause(static_cast<double>(bytes) / pace_.bytes_per_s);
    pause_.expires_after(std::chrono::duration_cast<asio::steady_timer::duration>(pause));
    pause_.async_wait(then("timer", [](Connection& self) { self.read_body(); }));
  }

  void finish() {
    const bool may_go_on = parser_->keep_alive() && !is_slow();
    auto* sink = std::exchange(sink_, nullptr);
    if (!may_go_on) close();
    sink->on_end("");
  }

  /// Reports a failure. If the connection was used before, the server may have closed it before it saw this request:
  /// then connects again.
  void failed(const char* what, const error_code& error) {
    const bool has_answer = parser_ && (parser_->got_some() || buffer_.size() > 0);
    if (was_used_ && !has_answer && error != beast::error::timeout) {
      was_used_ = false;
      return connect();
    }
    auto* sink = sink_;
    close();
    sink->on_end(std::string(what) + ": " + error.message());
  }

  bool is_slow() const { return pace_.never || pace_.bytes_per_s > 0; }

  asio::io_context& io_;
  Server& server_;
  asio::steady_timer pause_;
  std::shared_ptr<Stream> stream_;  ///< Set while it is connected or connects. Handlers of the stream keep it alive.
  beast::flat_buffer buffer_;
  std::optional<http::response_parser<http::buffer_body>> parser_;
  std::array<char, kReadBytes> body_;
  std::string request_;
  Pace pace_;
  ReplySink* sink_ = nullptr;  ///< sink of the current exchange
  bool was_used_ = false;
};

}  // namespace

Result<Server> Server::find(const BaseUrl& url, bool verify, std::chrono::milliseconds timeout) {
  Server server{.url = url, .endpoints = {}, .tls = nullptr, .timeout = timeout};
  asio::io_context io;
  error_code error;
  server.endpoints = asio::ip::tcp::resolver(io).resolve(url.host, url.port, error);
  if (error)
    return fail(ErrorCode::io_failed, "cannot find the server " + url.host + ": " + error.message(), "base_url");
  if (!url.is_https) return server;
  server.tls = std::make_unique<asio::ssl::context>(asio::ssl::context::tls_client);
  if (verify) {
    server.tls->set_default_verify_paths(error);
    server.tls->set_verify_mode(asio::ssl::verify_peer);
    server.tls->set_verify_callback(asio::ssl::host_name_verification(url.host));
  }
  return server;
}

std::shared_ptr<HttpConnection> make_connection(asio::io_context& io, Server& server) {
  if (server.tls != nullptr) return std::make_shared<Connection<TlsStream>>(io, server);
  return std::make_shared<Connection<PlainStream>>(io, server);
}

}  // namespace pagoda::bench_serve

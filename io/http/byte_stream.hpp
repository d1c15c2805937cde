#pragma once

#include <cstddef>
#include <string_view>
#include <vector>

#include <boost/asio/ip/tcp.hpp>

#include "io/http/tls.hpp"

namespace pagoda::http {

/// A client's socket, with TLS or without, that is tried and waited for: nothing is allocated while it is idle. Not
/// thread-safe. Private to the server.
class ByteStream {
 public:
  enum class Outcome { done, would_block, ended, failed };
  struct Transfer {
    Outcome outcome;
    std::size_t bytes = 0;
  };

  /// `tls` is null for plain TCP, and must outlive it. The socket is non-blocking.
  ByteStream(boost::asio::ip::tcp::socket socket, const TlsContext* tls);

  bool is_tls() const { return session_ != nullptr; }

  /// Goes on with the handshake of TLS; would_block: wait for input, or for output where wants_output().
  Outcome handshake();
  bool wants_output() const;

  /// `ended`: the client sends nothing more.
  Transfer read(std::vector<char>& into);
  /// True when there is input that no wait would tell of.
  bool has_buffered_input() const;

  Transfer write(std::string_view bytes);

  /// Tells the client that nothing more comes.
  void end_output();
  void close();

  /// To wait on.
  boost::asio::ip::tcp::socket& socket() { return socket_; }

 private:
  Transfer tls_transfer(int result);

  boost::asio::ip::tcp::socket socket_;
  TlsContext::Session session_;
  bool tls_failed_ = false;
};

}  // namespace pagoda::http

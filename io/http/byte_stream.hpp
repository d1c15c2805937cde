#pragma once

#include <cstddef>
#include <string_view>
#include <vector>

#include <boost/asio/ip/tcp.hpp>

#include "io/http/tls.hpp"

namespace pagoda::http {

/// A client's socket, with or without TLS. Operations do not block: the caller tries one and waits on the socket if it
/// would block. An idle stream allocates nothing. Not thread-safe. Private to the server.
class ByteStream {
 public:
  enum class Outcome { done, would_block, ended, failed };
  struct Transfer {
    Outcome outcome;
    std::size_t bytes = 0;
  };

  /// `tls` is null for plain TCP and must outlive the stream. The socket must be non-blocking.
  ByteStream(boost::asio::ip::tcp::socket socket, const TlsContext* tls);

  bool is_tls() const { return session_ != nullptr; }

  /// Continues the TLS handshake. After would_block, wait for output if wants_output(), and for input in any case.
  Outcome handshake();
  bool wants_output() const;

  /// Reads into `into`. `ended`: the client has closed its sending side.
  Transfer read(std::vector<char>& into);
  /// Returns whether TLS has buffered input, which a wait on the socket does not report.
  bool has_buffered_input() const;

  Transfer write(std::string_view bytes);

  /// Shuts the sending side.
  void end_output();
  void close();

  /// Returns the socket, for waiting.
  boost::asio::ip::tcp::socket& socket() { return socket_; }

 private:
  Transfer tls_transfer(int result);

  boost::asio::ip::tcp::socket socket_;
  TlsContext::Session session_;
  bool tls_failed_ = false;
};

}  // namespace pagoda::http

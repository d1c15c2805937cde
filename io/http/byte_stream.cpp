#include "io/http/byte_stream.hpp"

#include <algorithm>

#include <boost/asio/buffer.hpp>
#include <openssl/err.h>

namespace pagoda::http {
namespace {

using boost::asio::ip::tcp;
using boost::system::error_code;

// Maximum number of bytes that one call sends, so that a long answer does not keep the I/O thread from the other
// clients.
constexpr std::size_t kMaxWriteBytes = 256 << 10;

}  // namespace

ByteStream::ByteStream(tcp::socket socket, const TlsContext* tls) : socket_(std::move(socket)) {
  if (tls == nullptr) return;
  session_ = tls->new_session(socket_.native_handle());
  if (!session_) close();  // out of memory: close the connection, and never continue without TLS
}

ByteStream::Transfer ByteStream::tls_transfer(int result) {
  if (result > 0) return {Outcome::done, static_cast<std::size_t>(result)};
  switch (::SSL_get_error(session_.get(), result)) {
    case SSL_ERROR_WANT_READ:
    case SSL_ERROR_WANT_WRITE:
      return {Outcome::would_block};
    case SSL_ERROR_ZERO_RETURN:
      return {Outcome::ended};
    default:
      tls_failed_ = true;
      ::ERR_clear_error();
      return {Outcome::failed};
  }
}

ByteStream::Outcome ByteStream::handshake() {
  if (!session_) return Outcome::done;
  ::ERR_clear_error();
  return tls_transfer(::SSL_do_handshake(session_.get())).outcome;
}

bool ByteStream::wants_output() const {
  return session_ && SSL_want_write(session_.get());
}

ByteStream::Transfer ByteStream::read(std::vector<char>& into) {
  if (session_) {
    ::ERR_clear_error();
    return tls_transfer(::SSL_read(session_.get(), into.data(), static_cast<int>(into.size())));
  }
  error_code error;
  const auto size = socket_.read_some(boost::asio::buffer(into), error);
  if (!error) return {Outcome::done, size};
  if (error == boost::asio::error::would_block) return {Outcome::would_block};
  return {error == boost::asio::error::eof ? Outcome::ended : Outcome::failed};
}

bool ByteStream::has_buffered_input() const {
  return session_ && ::SSL_pending(session_.get()) > 0;
}

ByteStream::Transfer ByteStream::write(std::string_view bytes) {
  bytes = bytes.substr(0, kMaxWriteBytes);
  if (session_) {
    ::ERR_clear_error();
    return tls_transfer(::SSL_write(session_.get(), bytes.data(), static_cast<int>(bytes.size())));
  }
  error_code error;
  const auto size = socket_.write_some(boost::asio::buffer(bytes.data(), bytes.size()), error);
  if (!error) return {Outcome::done, size};
  return {error == boost::asio::error::would_block ? Outcome::would_block : Outcome::failed};
}

void ByteStream::end_output() {
  if (session_ && !tls_failed_) {
    ::ERR_clear_error();
    ::SSL_shutdown(session_.get());
    ::ERR_clear_error();
  }
  error_code ignored;
  socket_.shutdown(tcp::socket::shutdown_send, ignored);
}

void ByteStream::close() {
  session_.reset();
  error_code ignored;
  socket_.close(ignored);
}

}  // namespace pagoda::http

#include "io/http/tls.hpp"

#include <array>
#include <cerrno>
#include <cstdint>
#include <string_view>

#include <fcntl.h>
#include <openssl/err.h>
#include <sys/socket.h>
#include <unistd.h>

namespace pagoda::http {
namespace {

// A socket BIO like OpenSSL's own, but with MSG_NOSIGNAL: writing to a client that has gone must not end the process.

int socket_of(BIO* bio) {
  return static_cast<int>(reinterpret_cast<std::intptr_t>(::BIO_get_data(bio)));
}

bool may_try_again() {
  return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR;
}

int write_to_socket(BIO* bio, const char* bytes, int size) {
  BIO_clear_retry_flags(bio);
  const auto sent = ::send(socket_of(bio), bytes, static_cast<std::size_t>(size), MSG_NOSIGNAL);
  if (sent < 0 && may_try_again()) BIO_set_retry_write(bio);
  return static_cast<int>(sent);
}

int read_from_socket(BIO* bio, char* bytes, int size) {
  BIO_clear_retry_flags(bio);
  const auto received = ::recv(socket_of(bio), bytes, static_cast<std::size_t>(size), 0);
  if (received < 0 && may_try_again()) BIO_set_retry_read(bio);
  if (received == 0) ::BIO_set_flags(bio, BIO_FLAGS_IN_EOF);
  return static_cast<int>(received);
}

long control_socket(BIO* bio, int command, long, void*) {
  if (command == BIO_CTRL_FLUSH) return 1;
  if (command == BIO_CTRL_EOF) return ::BIO_test_flags(bio, BIO_FLAGS_IN_EOF) != 0;
  return 0;
}

/// Chooses HTTP/1.1 if the client offers it. A client that offers only other protocols fails at the first answer.
int choose_protocol(SSL*, const unsigned char** chosen, unsigned char* chosen_size, const unsigned char* offered,
                    unsigned offered_size, void*) {
  constexpr std::string_view kHttp11 = "http/1.1";
  for (unsigned at = 0; at < offered_size; at += 1U + offered[at]) {
    const void* name = offered + at + 1;
    if (std::string_view(static_cast<const char*>(name), offered[at]) != kHttp11) continue;
    *chosen = offered + at + 1;
    *chosen_size = offered[at];
    return SSL_TLSEXT_ERR_OK;
  }
  return SSL_TLSEXT_ERR_NOACK;
}

int no_passphrase(char*, int, int, void*) {
  return 0;
}

std::string last_error() {
  const auto code = ::ERR_peek_last_error();
  ::ERR_clear_error();
  const char* reason = ::ERR_reason_error_string(code);
  return reason == nullptr ? "unknown error" : reason;
}

Status check_readable(const std::string& file, const char* key) {
  const int handle = ::open(file.c_str(), O_RDONLY | O_CLOEXEC);
  if (handle < 0) return fail(ErrorCode::io_failed, "cannot read " + file, key);
  ::close(handle);
  return {};
}

}  // namespace

Result<std::unique_ptr<TlsContext>> TlsContext::load(const std::string& cert_file, const std::string& key_file) {
  if (auto status = check_readable(cert_file, "tls_cert"); !status) return fail(std::move(status.error()));
  if (auto status = check_readable(key_file, "tls_key"); !status) return fail(std::move(status.error()));
  std::unique_ptr<TlsContext> tls(new TlsContext);
  tls->context_.reset(::SSL_CTX_new(::TLS_server_method()));
  tls->socket_bio_.reset(::BIO_meth_new(BIO_TYPE_SOURCE_SINK | ::BIO_get_new_index(), "pagoda socket"));
  auto* context = tls->context_.get();
  auto* bio = tls->socket_bio_.get();
  if (context == nullptr || bio == nullptr) return fail(ErrorCode::io_failed, "cannot set up TLS: " + last_error());
  ::BIO_meth_set_write(bio, write_to_socket);
  ::BIO_meth_set_read(bio, read_from_socket);
  ::BIO_meth_set_ctrl(bio, control_socket);

  SSL_CTX_set_min_proto_version(context, TLS1_2_VERSION);
  ::SSL_CTX_set_options(context, SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_COMPRESSION | SSL_OP_IGNORE_UNEXPECTED_EOF |
                                     SSL_OP_CIPHER_SERVER_PREFERENCE);
  // Partial writes and moving buffers: unsent bytes are in a string that grows. Released buffers: an idle connection
  // does not keep the 32 KiB of its records.
  SSL_CTX_set_mode(context,
                   SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER | SSL_MODE_RELEASE_BUFFERS);
  SSL_CTX_set_session_cache_mode(context, SSL_SESS_CACHE_OFF);
  ::SSL_CTX_set_alpn_select_cb(context, choose_protocol, nullptr);
  ::SSL_CTX_set_default_passwd_cb(context, no_passphrase);

  if (::SSL_CTX_use_certificate_chain_file(context, cert_file.c_str()) != 1) {
    return fail(ErrorCode::bad_config, cert_file + " is not a certificate in PEM: " + last_error(), "tls_cert");
  }
  if (::SSL_CTX_use_PrivateKey_file(context, key_file.c_str(), SSL_FILETYPE_PEM) != 1 ||
      ::SSL_CTX_check_private_key(context) != 1) {
    return fail(
        ErrorCode::bad_config,
        key_file + " is not the private key, in PEM and without a passphrase, of " + cert_file + ": " + last_error(),
        "tls_key");
  }
  return tls;
}

TlsContext::Session TlsContext::new_session(int socket) const {
  Session session(::SSL_new(context_.get()));
  BIO* bio = ::BIO_new(socket_bio_.get());
  if (!session || bio == nullptr) {
    ::BIO_free(bio);
    return nullptr;
  }
  ::BIO_set_data(bio, reinterpret_cast<void*>(static_cast<std::intptr_t>(socket)));
  ::BIO_set_init(bio, 1);
  ::SSL_set_bio(session.get(), bio, bio);
  ::SSL_set_accept_state(session.get());
  return session;
}

}  // namespace pagoda::http

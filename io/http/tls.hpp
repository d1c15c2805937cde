#pragma once

#include <memory>
#include <string>

#include <openssl/ssl.h>

#include "kernels/result.hpp"

namespace pagoda::http {

/// The server's certificate and settings for TLS 1.2 and 1.3. Shared by all connections.
class TlsContext {
 public:
  /// Loads the files. Errors name the file: io_failed if it cannot be read; bad_config if it is invalid or the key does
  /// not belong to the certificate. A key with a passphrase is refused, because the server cannot ask for the
  /// passphrase.
  static Result<std::unique_ptr<TlsContext>> load(const std::string& cert_file, const std::string& key_file);

  struct FreeSsl {
    void operator()(SSL* ssl) const { ::SSL_free(ssl); }
  };
  using Session = std::unique_ptr<SSL, FreeSsl>;

  /// Returns the server's side of a session on a connected, non-blocking socket. The caller keeps the socket. Returns
  /// null if memory is out.
  Session new_session(int socket) const;

 private:
  TlsContext() = default;

  struct Free {
    void operator()(SSL_CTX* context) const { ::SSL_CTX_free(context); }
    void operator()(BIO_METHOD* method) const { ::BIO_meth_free(method); }
  };
  std::unique_ptr<SSL_CTX, Free> context_;
  std::unique_ptr<BIO_METHOD, Free> socket_bio_;
};

}  // namespace pagoda::http

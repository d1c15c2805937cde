#pragma once

#include <memory>
#include <string>

#include <openssl/ssl.h>

#include "kernels/result.hpp"

namespace pagoda::http {

/// The server's certificate and what it takes to speak TLS 1.2 and 1.3 with it. Shared by all connections.
class TlsContext {
 public:
  /// Errors name the file: io_failed where it cannot be read, bad_config where it is not what it should be or the key
  /// is another certificate's. A key with a passphrase is refused, for nobody is there to ask.
  static Result<std::unique_ptr<TlsContext>> load(const std::string& cert_file, const std::string& key_file);

  struct FreeSsl {
    void operator()(SSL* ssl) const { ::SSL_free(ssl); }
  };
  using Session = std::unique_ptr<SSL, FreeSsl>;

  /// The server's side of a session on a connected, non-blocking socket, which stays the caller's. Null when there is
  /// no memory for it.
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

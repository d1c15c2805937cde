#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "io/memory_reserve.hpp"
#include "io/serving/key_ring.hpp"
#include "io/serving/resume_config.hpp"
#include "kernels/result.hpp"

namespace pagoda::http {

/// What the HTTP server is told at start. Field names are the keys of a config file and, with dashes, the flags; the
/// keys themselves come from files of their own.
struct ServerConfig {
  std::string http;  ///< HOST:PORT; [::1]:PORT for IPv6; port 0 picks one; empty: no HTTP
  /// Without users' keys nobody has to authenticate; without admins' the admin routes are closed to all.
  serving::SharedKeys keys = std::make_shared<serving::KeyRing>();
  bool allow_unauthenticated = false;  ///< listen beyond this machine without API keys
  std::string tls_cert;                ///< PEM file with the certificate and its chain; empty: no TLS
  std::string tls_key;                 ///< PEM file with its private key
  std::string cors_origin;             ///< the origin whose pages may call, or *; empty: none
  bool log_prompts = false;            ///< each request's prompt goes to the log
  bool strict_fields = false;          ///< refuse unknown fields of requests; else they are ignored by name
  bool any_model_name = false;         ///< a name that no model has means the first model
  bool page = true;                    ///< serve the page for browsers
  io::SharedReserve reserve;           ///< while it is out no new work is taken; null: there is none
  serving::ResumeConfig resume;        ///< of the server of JSON lines too
  std::int64_t max_body_bytes = 32 << 20;
  std::int32_t http_max_connections = 1024;
  std::int32_t http_header_timeout_ms = 10'000;  ///< for the TLS handshake, and for a request's head once it has begun
  std::int32_t http_body_timeout_ms = 60'000;    ///< for the whole of a request's body
  std::int32_t http_idle_timeout_ms = 75'000;    ///< how long a connection without a request is kept
  std::int32_t http_send_timeout_ms = 120'000;   ///< how long a client that reads nothing of its answer is waited for
  std::int64_t http_max_buffered_bytes = 16 << 20;  ///< unsent bytes of a stream at which a slow reader is cut off
  std::int32_t http_close_grace_ms = 2000;  ///< how long a connection that ends waits for the client to close too

  /// Every problem at once; empty when there is none. `param` names the key. That an address beyond this machine needs
  /// keys is found out when the server starts, for a name must be resolved first.
  std::vector<Error> validate() const;
};

}  // namespace pagoda::http

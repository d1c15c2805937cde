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

/// Settings of the HTTP server. Field names are the keys of a config file and, with dashes, the flags. API keys come
/// from separate files.
struct ServerConfig {
  std::string http;  ///< HOST:PORT; [::1]:PORT for IPv6; port 0: any free port; empty: no HTTP
  /// Without API keys no authentication is needed. Without admin keys the admin routes are closed.
  serving::SharedKeys keys = std::make_shared<serving::KeyRing>();
  bool allow_unauthenticated = false;  ///< allow addresses beyond this machine without API keys
  std::string tls_cert;                ///< PEM file with the certificate and its chain; empty: no TLS
  std::string tls_key;                 ///< PEM file with the certificate's private key
  std::string cors_origin;             ///< origin whose pages may send requests, or *; empty: none
  bool log_prompts = false;            ///< log each request's prompt
  bool strict_fields = false;    ///< refuse unknown fields of requests; otherwise they are ignored and reported by name
  bool any_model_name = false;   ///< use the first model for unknown model names
  bool page = true;              ///< serve the page for browsers
  io::SharedReserve reserve;     ///< no new work is accepted while this reserve is used up; null: no reserve
  serving::ResumeConfig resume;  ///< also used by the server of JSON lines
  std::int64_t max_body_bytes = 32 << 20;
  std::int32_t http_max_connections = 1024;
  /// for the TLS handshake, and for the rest of a request's head after its first bytes
  std::int32_t http_header_timeout_ms = 10'000;
  std::int32_t http_body_timeout_ms = 60'000;   ///< for a request's body
  std::int32_t http_idle_timeout_ms = 75'000;   ///< for a connection without a request
  std::int32_t http_send_timeout_ms = 120'000;  ///< for a client that does not read its answer
  /// maximum of unsent bytes of a stream; above it a slow client is cut off
  std::int64_t http_max_buffered_bytes = 16 << 20;
  std::int32_t http_close_grace_ms = 2000;  ///< for the client to close a connection that the server ends

  /// Returns all errors; empty: none. `param` is the key. Whether an address beyond this machine has API keys is
  /// checked at the server's start, because a host name must be resolved first.
  std::vector<Error> validate() const;
};

}  // namespace pagoda::http

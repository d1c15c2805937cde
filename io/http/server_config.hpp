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
  bool allow_unauthenticated = false;  ///< whether other machines may connect although there are no API keys
  std::string tls_cert;                ///< PEM file with the certificate and its chain; empty: no TLS
  std::string tls_key;                 ///< PEM file with the certificate's private key
  std::string cors_origin;             ///< origin whose pages may send requests, or *; empty: none
  bool log_prompts = false;            ///< whether the prompt of each request is logged
  /// Whether unknown fields of requests are refused. If not, they are ignored and reported by name.
  bool strict_fields = false;
  /// Whether an unknown model name means the first model. If not, requests with an unknown name are refused.
  bool any_model_name = false;
  bool page = true;              ///< whether the page for browsers is served
  io::SharedReserve reserve;     ///< no new work is accepted while this reserve is used up; null: no reserve
  serving::ResumeConfig resume;  ///< also used by the server of JSON lines
  std::int64_t max_body_bytes = 32 << 20;
  std::int32_t http_max_connections = 1024;
  /// Time limit of the TLS handshake, and of the rest of a request's head after its first bytes.
  std::int32_t http_header_timeout_ms = 10'000;
  std::int32_t http_body_timeout_ms = 60'000;   ///< time limit of a request's body
  std::int32_t http_idle_timeout_ms = 75'000;   ///< time after which a connection without a request is closed
  std::int32_t http_send_timeout_ms = 120'000;  ///< time in which a client must read part of its answer
  /// Maximum number of unsent bytes of a stream. Above it, a slow client is cut off.
  std::int64_t http_max_buffered_bytes = 16 << 20;
  std::int32_t http_close_grace_ms = 2000;  ///< time for the client to close a connection that the server ends

  /// Returns all errors; empty: none. `param` is the key. The server's start checks whether other machines
  /// can reach the address without API keys, because it must resolve the host name first.
  std::vector<Error> validate() const;
};

}  // namespace pagoda::http

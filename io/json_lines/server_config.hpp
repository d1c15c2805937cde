#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "io/memory_reserve.hpp"
#include "io/serving/key_ring.hpp"
#include "io/serving/resume_config.hpp"
#include "kernels/result.hpp"

namespace pagoda::json_lines {

/// What the TCP server is told at start. Field names are the keys of a config file and, with dashes, the flags;
/// the keys themselves come from files of their own, and allow_unauthenticated, log_prompts and resume are those of the
/// HTTP server.
struct ServerConfig {
  std::string listen = "127.0.0.1:7070";  ///< HOST:PORT; [::1]:PORT for IPv6; port 0 picks one
  serving::SharedKeys keys = std::make_shared<serving::KeyRing>();  ///< without users' keys nobody has to authenticate
  bool allow_unauthenticated = false;                               ///< listen beyond this machine without API keys
  bool log_prompts = false;                                         ///< each request's prompt goes to the log
  io::SharedReserve reserve;                                        ///< as the HTTP server's
  serving::ResumeConfig resume;
  std::int64_t max_line_bytes = 4 << 20;
  std::int32_t max_connections = 1024;
  std::int32_t max_live_requests_per_connection = 1024;
  std::int64_t coalesce_bytes = 256 << 10;     ///< unsent output from which the deltas of a sequence are merged
  std::int64_t max_buffered_bytes = 16 << 20;  ///< unsent output at which a slow reader's requests are cancelled
  std::int32_t auth_timeout_ms = 10'000;       ///< where keys are asked for: how long a client has to give one
  std::int32_t idle_timeout_ms = 600'000;      ///< how long a connection that asks for nothing is kept; 0: for ever
  std::int32_t send_timeout_ms = 120'000;      ///< how long a client that reads nothing of what waits is waited for
  std::int32_t close_grace_ms = 2000;          ///< how long a connection that must end may take its last lines

  /// Every problem at once; empty when there is none. `param` names the key.
  std::vector<Error> validate() const;
};

}  // namespace pagoda::json_lines

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

/// Options of the TCP server. Field names are the keys of a config file and, with dashes, the flags. API keys come from
/// separate files. allow_unauthenticated, log_prompts and resume have the values of the HTTP server.
struct ServerConfig {
  std::string listen = "127.0.0.1:7070";  ///< HOST:PORT; [::1]:PORT for IPv6; port 0 picks one
  serving::SharedKeys keys = std::make_shared<serving::KeyRing>();  ///< without users' keys no authentication is needed
  bool allow_unauthenticated = false;  ///< whether other machines may connect although there are no API keys
  bool log_prompts = false;            ///< whether the prompt of each request is logged
  io::SharedReserve reserve;           ///< shared with the HTTP server
  serving::ResumeConfig resume;
  std::int64_t max_line_bytes = 4 << 20;
  std::int32_t max_connections = 1024;
  std::int32_t max_live_requests_per_connection = 1024;
  std::int64_t coalesce_bytes = 256 << 10;     ///< unsent bytes above which the deltas of a sequence are merged
  std::int64_t max_buffered_bytes = 16 << 20;  ///< unsent bytes at which a slow reader's requests are cancelled
  std::int32_t auth_timeout_ms = 10'000;       ///< time in which a client must give a key, if keys are needed
  std::int32_t idle_timeout_ms = 600'000;      ///< time after which a connection without requests is closed; 0: never
  std::int32_t send_timeout_ms = 120'000;      ///< time in which a client must read part of its waiting output
  std::int32_t close_grace_ms = 2000;          ///< time that a closing connection has to send its last lines

  /// Returns every problem; empty if there is none. `param` names the key.
  std::vector<Error> validate() const;
};

}  // namespace pagoda::json_lines

#include "io/json_lines/server_config.hpp"

#include "io/serving/listen_address.hpp"

namespace pagoda::json_lines {

std::vector<Error> ServerConfig::validate() const {
  std::vector<Error> problems;
  const auto at_least = [&](const char* key, std::int64_t value, std::int64_t least) {
    if (value < least) {
      problems.push_back(
          {ErrorCode::bad_config,
           std::string(key) + " must be at least " + std::to_string(least) + ", not " + std::to_string(value), key,
           -1});
    }
  };
  if (auto address = serving::parse_listen(listen); !address) problems.push_back(std::move(address.error()));
  at_least("max_line_bytes", max_line_bytes, 256);
  at_least("max_connections", max_connections, 1);
  at_least("max_live_requests_per_connection", max_live_requests_per_connection, 1);
  at_least("coalesce_bytes", coalesce_bytes, 0);
  at_least("max_buffered_bytes", max_buffered_bytes, coalesce_bytes + 1);
  at_least("auth_timeout_ms", auth_timeout_ms, 1);
  at_least("idle_timeout_ms", idle_timeout_ms, 0);
  at_least("send_timeout_ms", send_timeout_ms, 1);
  at_least("close_grace_ms", close_grace_ms, 0);
  return problems;
}

}  // namespace pagoda::json_lines

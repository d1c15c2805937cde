#include "io/json_lines/server_config.hpp"

#include <charconv>
#include <fstream>

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
  if (auto address = parse_listen(listen); !address) problems.push_back(std::move(address.error()));
  at_least("max_line_bytes", max_line_bytes, 256);
  at_least("max_connections", max_connections, 1);
  at_least("max_live_requests_per_connection", max_live_requests_per_connection, 1);
  at_least("coalesce_bytes", coalesce_bytes, 0);
  at_least("max_buffered_bytes", max_buffered_bytes, coalesce_bytes + 1);
  at_least("close_grace_ms", close_grace_ms, 0);
  for (const auto& key : api_keys) {
    if (key.empty()) problems.push_back({ErrorCode::bad_config, "an API key must not be empty", "api_key_file"});
  }
  return problems;
}

Result<ListenAddress> parse_listen(std::string_view listen) {
  const auto refuse = [&] {
    return fail(ErrorCode::bad_config, "listen must be HOST:PORT, not \"" + std::string(listen) + "\"", "listen");
  };
  const auto colon = listen.rfind(':');
  if (colon == std::string_view::npos) return refuse();
  auto host = listen.substr(0, colon);
  const auto port_text = listen.substr(colon + 1);
  if (host.size() > 2 && host.front() == '[' && host.back() == ']') {
    host = host.substr(1, host.size() - 2);
  } else if (host.find(':') != std::string_view::npos) {
    return refuse();
  }
  if (host.empty()) return refuse();
  ListenAddress address{std::string(host), 0};
  const auto [end, code] = std::from_chars(port_text.data(), port_text.data() + port_text.size(), address.port);
  if (code != std::errc{} || end != port_text.data() + port_text.size()) return refuse();
  return address;
}

Result<std::vector<std::string>> read_api_keys(const std::string& path) {
  std::ifstream file(path);
  if (!file) return fail(ErrorCode::io_failed, "cannot read the API key file " + path, "api_key_file");
  std::vector<std::string> keys;
  for (std::string line; std::getline(file, line);) {
    if (!line.empty() && line.back() == '\r') line.pop_back();
    if (!line.empty() && line.front() != '#') keys.push_back(line);
  }
  if (keys.empty()) return fail(ErrorCode::bad_config, "the API key file " + path + " holds no key", "api_key_file");
  return keys;
}

bool is_known_key(const std::vector<std::string>& keys, std::string_view key) {
  bool known = false;
  for (const auto& candidate : keys) {
    unsigned difference = candidate.size() == key.size() ? 0U : 1U;
    for (std::size_t i = 0; i < key.size(); ++i) {
      difference |= static_cast<unsigned>(static_cast<unsigned char>(key[i]) ^
                                          static_cast<unsigned char>(candidate[i % candidate.size()]));
    }
    known |= difference == 0;
  }
  return known;
}

}  // namespace pagoda::json_lines

#include "io/http/server_config.hpp"

#include <utility>

#include "io/serving/listen_address.hpp"

namespace pagoda::http {
namespace {

constexpr std::int64_t kMaxBodyBytes = std::int64_t{1} << 40;

}  // namespace

std::vector<Error> ServerConfig::validate() const {
  std::vector<Error> problems;
  const auto refuse = [&](const char* key, std::string message) {
    problems.push_back({ErrorCode::bad_config, std::move(message), key});
  };
  const auto within = [&](const char* key, std::int64_t value, std::int64_t least, std::int64_t most) {
    if (value >= least && value <= most) return;
    refuse(key, std::string(key) + " must be from " + std::to_string(least) + " to " + std::to_string(most) + ", not " +
                    std::to_string(value));
  };
  if (!http.empty()) {
    if (auto address = serving::parse_listen(http, "http"); !address) problems.push_back(std::move(address.error()));
  }
  constexpr std::int64_t kDayMs = 24 * 60 * 60 * 1000;
  within("max_body_bytes", max_body_bytes, 1, kMaxBodyBytes);
  within("http_max_connections", http_max_connections, 1, 1 << 20);
  within("http_header_timeout_ms", http_header_timeout_ms, 1, kDayMs);
  within("http_body_timeout_ms", http_body_timeout_ms, 1, kDayMs);
  within("http_idle_timeout_ms", http_idle_timeout_ms, 1, kDayMs);
  within("http_send_timeout_ms", http_send_timeout_ms, 1, kDayMs);
  within("http_max_buffered_bytes", http_max_buffered_bytes, 1024, kMaxBodyBytes);
  within("http_close_grace_ms", http_close_grace_ms, 0, kDayMs);
  for (auto& problem : resume.validate()) problems.push_back(std::move(problem));
  if (tls_cert.empty() != tls_key.empty()) {
    const auto* missing = tls_cert.empty() ? "tls_cert" : "tls_key";
    refuse(missing, "tls_cert and tls_key must be given together");
  }
  const bool has_scheme = cors_origin.rfind("http://", 0) == 0 || cors_origin.rfind("https://", 0) == 0;
  const auto host = cors_origin.find("//") + 2;
  const bool is_origin =
      has_scheme && cors_origin.size() > host && cors_origin.find_first_of("/ \t\r\n,*", host) == std::string::npos;
  if (!cors_origin.empty() && cors_origin != "*" && !is_origin) {
    refuse("cors_origin",
           "cors_origin must be * or one origin such as https://example.org, not \"" + cors_origin + "\"");
  }
  return problems;
}

}  // namespace pagoda::http

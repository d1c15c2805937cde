#include "io/http/limit_headers.hpp"

#include <chrono>
#include <cstdint>
#include <string>

#include "io/http/error_answer.hpp"

namespace pagoda::http {
namespace {

/// Returns a duration as "120ms", "7s" or "1m30s".
std::string duration_text(std::chrono::milliseconds time) {
  constexpr std::int64_t kMsPerSecond = 1000;
  constexpr std::int64_t kSecondsPerMinute = 60;
  if (time.count() < kMsPerSecond) return std::to_string(time.count()) + "ms";
  const auto seconds = (time.count() + kMsPerSecond - 1) / kMsPerSecond;
  const auto minutes = seconds / kSecondsPerMinute;
  return (minutes > 0 ? std::to_string(minutes) + "m" : std::string()) + std::to_string(seconds % kSecondsPerMinute) +
         "s";
}

void add(Pairs& headers, const std::string& what, const serving::LimitLevel& level) {
  headers.emplace_back("x-ratelimit-limit-" + what, std::to_string(level.limit));
  headers.emplace_back("x-ratelimit-remaining-" + what, std::to_string(level.remaining));
  headers.emplace_back("x-ratelimit-reset-" + what, duration_text(level.reset));
}

}  // namespace

Pairs limit_headers(const serving::LimitLevels& levels) {
  Pairs headers;
  if (levels.requests) add(headers, "requests", *levels.requests);
  if (levels.tokens) add(headers, "tokens", *levels.tokens);
  return headers;
}

void add_limit_headers(Exchange& exchange, const serving::SharedPrincipal& principal) {
  if (principal) exchange.set_limit_headers(limit_headers(principal->usage->levels(serving::LimitClock::now())));
}

ErrorAnswer limit_answer(const serving::LimitRefusal& refusal) {
  if (refusal.retry_after.count() == 0) return invalid_request(refusal.message);
  return {429, refusal.message, {}, "rate_limit_exceeded", {}, refusal.retry_after.count()};
}

}  // namespace pagoda::http

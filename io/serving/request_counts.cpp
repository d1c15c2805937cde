#include "io/serving/request_counts.hpp"

#include "io/metrics/prometheus_text.hpp"

namespace pagoda::serving {
namespace {

constexpr std::string_view kNoRoute = "none";

std::string result_of(const RequestRecord& record) {
  if (!record.error.empty()) return std::string(record.error);
  return record.generation && record.generation->finish_reason == "abort" ? "aborted" : "done";
}

}  // namespace

void RequestCounts::add(const RequestRecord& record) {
  const std::lock_guard lock(mutex_);
  if (record.api == kHttp) {
    ++http_[HttpKey(record.method, record.route.empty() ? kNoRoute : record.route, record.status)];
  } else {
    ++json_lines_[result_of(record)];
  }
}

void RequestCounts::write(metrics::PrometheusText& text) const {
  const std::lock_guard lock(mutex_);
  text.counter(
      "pagoda:http_requests_total",
      "Number of HTTP requests, by method, route (none: no such route) and status (499: the client disconnected "
      "before the answer).");
  for (const auto& [key, count] : http_) {
    const auto& [method, route, status] = key;
    text.sample(count, metrics::labels({{"method", method}, {"route", route}, {"status", std::to_string(status)}}));
  }
  text.counter("pagoda:json_lines_requests_total",
               "Number of requests of JSON lines that have ended, by result: done, aborted or the code of an error.");
  for (const auto& [result, count] : json_lines_) text.sample(count, metrics::labels({{"result", result}}));
}

}  // namespace pagoda::serving

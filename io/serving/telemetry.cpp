#include "io/serving/telemetry.hpp"

#include "engine/routing/queue_full.hpp"
#include "io/metrics/prometheus_text.hpp"

namespace pagoda::serving {

Error no_room() {
  return {ErrorCode::queue_full,
          "this server has too many buffered bytes of requests and answers",
          {},
          routing::kRetryAfterMs};
}

bool Telemetry::has_room_for(std::uint64_t more) const {
  const auto waiting =
      http.buffered_bytes.load(std::memory_order_relaxed) + json_lines.buffered_bytes.load(std::memory_order_relaxed);
  return waiting <= max_buffered_bytes && more <= static_cast<std::uint64_t>(max_buffered_bytes - waiting);
}

void Telemetry::ended(RequestRecord& record) {
  record.end();
  counts.add(record);
  for (const auto& observer : observers) observer->on_end(record);
}

void Telemetry::generated(RequestRecord& record) {
  record.end();
  for (const auto& observer : observers) observer->on_end(record);
}

void Telemetry::write(metrics::PrometheusText& text) const {
  const auto write_each = [&](auto of_meter) {
    text.sample(of_meter(http).load(std::memory_order_relaxed), metrics::labels({{"api", kHttp}}));
    text.sample(of_meter(json_lines).load(std::memory_order_relaxed), metrics::labels({{"api", kJsonLines}}));
  };
  counts.write(text);
  ignored_fields.write(text);
  text.gauge("pagoda:connections", "Number of open connections.");
  write_each([](const ConnectionMeter& meter) -> const auto& { return meter.open; });
  text.counter("pagoda:connections_accepted_total", "Number of connections that were opened.");
  write_each([](const ConnectionMeter& meter) -> const auto& { return meter.accepted; });
  text.gauge("pagoda:buffered_bytes",
             "Number of bytes of requests and answers that are buffered for their connections.");
  write_each([](const ConnectionMeter& meter) -> const auto& { return meter.buffered_bytes; });
  text.counter("pagoda:buffers_refused_total",
               "Number of bodies and lines that were refused because too many bytes were buffered.");
  write_each([](const ConnectionMeter& meter) -> const auto& { return meter.refused_for_room; });
  for (const auto& observer : observers) observer->write(text);
  for (const auto& source : sources) source->write(text);
}

}  // namespace pagoda::serving

#include "io/serving/telemetry.hpp"

#include "io/metrics/prometheus_text.hpp"

namespace pagoda::serving {

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
  text.gauge("pagoda:connections", "Connections that are open.");
  write_each([](const ConnectionMeter& meter) -> const auto& { return meter.open; });
  text.counter("pagoda:connections_accepted_total", "Connections that were opened.");
  write_each([](const ConnectionMeter& meter) -> const auto& { return meter.accepted; });
  text.gauge("pagoda:buffered_bytes", "Bytes of requests and answers that wait in memory for their connections.");
  write_each([](const ConnectionMeter& meter) -> const auto& { return meter.buffered_bytes; });
  for (const auto& observer : observers) observer->write(text);
}

}  // namespace pagoda::serving

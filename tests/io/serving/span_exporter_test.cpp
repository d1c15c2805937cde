#include "io/serving/span_exporter.hpp"

#include <chrono>
#include <string>
#include <thread>

#include <gtest/gtest.h>

#include "io/metrics/prometheus_text.hpp"

namespace pagoda::serving {
namespace {

std::string metrics_of(const SpanExporter& exporter) {
  std::string out;
  metrics::PrometheusText text(out);
  exporter.write(text);
  return out;
}

TEST(SpanExporter, CountsTheSpansOfABatchThatAnExceptionEndsAsDropped) {
  // A host that is too long for a header: preparing the request throws an exception.
  SpanExporter exporter({.host = std::string(1 << 17, 'a'), .port = "4318", .target = "/v1/traces"});
  RequestRecord record;
  record.generation.emplace();
  exporter.on_end(record);
  const auto is_counted = [&] {
    return metrics_of(exporter).find("pagoda:spans_dropped_total 1\n") != std::string::npos;
  };
  for (int i = 0; i < 600 && !is_counted(); ++i) std::this_thread::sleep_for(std::chrono::milliseconds(100));
  EXPECT_TRUE(is_counted()) << metrics_of(exporter);
}

}  // namespace
}  // namespace pagoda::serving

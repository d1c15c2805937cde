#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "io/serving/request_record.hpp"
#include "kernels/result.hpp"

namespace pagoda::serving {

/// Where spans go, from an address as http://HOST:PORT/v1/traces; the port is 4318 unless it is given.
struct TracesEndpoint {
  std::string host;
  std::string port;
  std::string target;  ///< path and query

  /// Error: bad_config, with the param otlp_traces_endpoint.
  static Result<TracesEndpoint> parse(std::string_view url);
};

/// The body of an OTLP/HTTP request in JSON: a span for each record, with the attributes that vLLM gives its own. One
/// without a trace begins one.
std::string otlp_traces(std::span<const RequestRecord> records);

/// Sends a span for each request that generates to a collector, but for those whose caller does not sample its trace. A
/// thread of its own sends them in batches. A collector that is slow or away costs spans, which are counted, and
/// nothing else.
class SpanExporter final : public RequestObserver {
 public:
  static constexpr std::size_t kMaxWaiting = 4096;
  static constexpr std::size_t kBatch = 512;

  explicit SpanExporter(TracesEndpoint endpoint);
  /// Sends what waits, for as long as one batch may take.
  ~SpanExporter() override;

  void on_end(const RequestRecord& record) override;
  void write(metrics::PrometheusText& text) const override;

 private:
  class State;
  std::unique_ptr<State> state_;
};

}  // namespace pagoda::serving

#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "io/serving/request_record.hpp"
#include "kernels/result.hpp"

namespace pagoda::serving {

/// Address that spans are sent to, parsed from a URL such as http://HOST:PORT/v1/traces. The default port is 4318.
struct TracesEndpoint {
  std::string host;
  std::string port;
  std::string target;  ///< path and query

  /// Parses an http URL. Error: bad_config, with the param otlp_traces_endpoint.
  static Result<TracesEndpoint> parse(std::string_view url);
};

/// Returns the body of an OTLP/HTTP request in JSON: one span per record, with the attributes of vLLM's spans. A record
/// without a trace begins a new trace.
std::string otlp_traces(std::span<const RequestRecord> records);

/// Sends a span to a collector for each request that generates, except requests whose caller does not sample its trace.
/// A thread of its own sends the spans in batches. If the collector is slow or cannot be reached, spans are dropped and
/// counted; nothing else is affected.
class SpanExporter final : public RequestObserver {
 public:
  static constexpr std::size_t kMaxWaiting = 4096;
  static constexpr std::size_t kBatch = 512;

  explicit SpanExporter(TracesEndpoint endpoint);
  /// Sends the waiting spans, for at most the time that one batch may take.
  ~SpanExporter() override;

  void on_end(const RequestRecord& record) override;
  void write(metrics::PrometheusText& text) const override;

 private:
  class State;
  std::unique_ptr<State> state_;
};

}  // namespace pagoda::serving

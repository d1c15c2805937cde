#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/request/output.hpp"
#include "engine/request/sampling_defaults.hpp"
#include "engine/request/sampling_params.hpp"

namespace pagoda::metrics {
class PrometheusText;
}

namespace pagoda::serving {

/// Counts and times of the output that was generated for a client's request. If the request has several prompts, each
/// count is the sum over the prompts, and each time is the shortest or the longest of the prompts.
struct GenerationRecord {
  std::string model;
  std::int64_t prompt_tokens = 0;
  std::int64_t cached_tokens = 0;      ///< prompt tokens from the prefix cache
  std::int64_t completion_tokens = 0;  ///< for an aborted request: the tokens that were streamed
  std::int64_t num_sequences = 0;      ///< sequences that have ended
  std::optional<double> queue_ms;      ///< time from arrival to first step; the shortest
  std::optional<double> ttft_ms;       ///< time from arrival to first token; the shortest
  std::optional<double> total_ms;      ///< time from arrival to end; the longest
  /// Worst finish reason of all sequences, from best to worst: stop, length, abort, error (stands for every error).
  /// Empty while no sequence has ended.
  std::string_view finish_reason;
  // Values that the request gives; absent if it leaves the field open.
  std::optional<std::int64_t> max_tokens;
  std::optional<double> temperature;
  std::optional<double> top_p;
  std::int64_t n = 1;

  /// Sets the values that the request gives. `open`: the fields that the request leaves open.
  void asked(const SamplingParams& sampling, const OpenSamplingFields& open);
  /// Call when the request, or one of its prompts, is done. `streamed_tokens`: number of its output tokens that are
  /// counted already.
  void done(const RequestResult& result, std::int64_t streamed_tokens = 0);
};

/// Trace of a request, from its header `traceparent` (W3C Trace Context, version 00).
struct TraceParent {
  std::string trace_id;  ///< 32 digits
  std::string span_id;   ///< span of the caller; 16 digits
  bool sampled = false;

  /// Returns nothing if the text is not a valid header; the header then counts as absent.
  static std::optional<TraceParent> parse(std::string_view text);
};

// Values of RequestRecord::api:
inline constexpr std::string_view kHttp = "http";
inline constexpr std::string_view kJsonLines = "json_lines";

/// One request of a client whose answer has ended. It holds no keys, and no text of prompts or outputs.
struct RequestRecord {
  std::chrono::system_clock::time_point time = std::chrono::system_clock::now();  ///< time of arrival
  std::chrono::steady_clock::time_point began = std::chrono::steady_clock::now();
  std::string_view api = kHttp;
  std::string request_id = {};
  std::string client = {};       ///< ADDRESS:PORT
  std::string tenant = {};       ///< name of the key; empty if the key has no name or there is no key
  std::string_view method = {};  ///< HTTP method
  std::string route = {};        ///< HTTP: pattern of the path; JSON lines: the op; empty: no such route
  unsigned status = 0;           ///< HTTP status; kClientClosed if the client left before the answer began
  std::string_view error = {};   ///< JSON lines: code of the error; empty: no error
  bool is_cut = false;           ///< whether the client left, or was cut off, after the answer began and before its end
  double total_ms = 0;
  std::optional<GenerationRecord> generation = {};
  std::optional<TraceParent> trace = {};

  /// Status of a request whose client left before the answer began. The HTTP standard has no such status; the number is
  /// that of nginx.
  static constexpr unsigned kClientClosed = 499;

  void end() { total_ms = std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - began).count(); }
};

/// Receives every request whose answer has ended. The I/O threads of several servers call it, so it must be thread-safe
/// and must not block.
class RequestObserver {
 public:
  virtual ~RequestObserver() = default;
  virtual void on_end(const RequestRecord& record) = 0;
  /// Writes the observer's own metrics.
  virtual void write(metrics::PrometheusText& text) const = 0;
};

using RequestObservers = std::vector<std::shared_ptr<RequestObserver>>;

}  // namespace pagoda::serving

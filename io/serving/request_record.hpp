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

/// What a client's request had generated. Of several prompts in one: sums, and the shortest of the waits.
struct GenerationRecord {
  std::string model;
  std::int64_t prompt_tokens = 0;
  std::int64_t cached_tokens = 0;      ///< of the prompts: from the prefix cache
  std::int64_t completion_tokens = 0;  ///< of one that was aborted: those that were streamed
  std::int64_t num_sequences = 0;      ///< that have ended
  std::optional<double> queue_ms;      ///< arrival to first step; likewise
  std::optional<double> ttft_ms;       ///< arrival to first token
  std::optional<double> total_ms;      ///< arrival to end; the longest
  /// The worst of: stop, length, abort, and error, which every error is; empty while nothing has ended.
  std::string_view finish_reason;
  // As the request gives them; absent where it leaves them open.
  std::optional<std::int64_t> max_tokens;
  std::optional<double> temperature;
  std::optional<double> top_p;
  std::int64_t n = 1;

  void asked(const SamplingParams& sampling, const OpenSamplingFields& open);
  /// The request, or one of its prompts, is done; `streamed_tokens` of it are counted already.
  void done(const RequestResult& result, std::int64_t streamed_tokens = 0);
};

/// The trace that a request belongs to, from its header `traceparent` (W3C Trace Context, version 00).
struct TraceParent {
  std::string trace_id;  ///< 32 digits
  std::string span_id;   ///< of the caller; 16 digits
  bool sampled = false;

  /// Nothing for a text that is none: then it is as absent.
  static std::optional<TraceParent> parse(std::string_view text);
};

// RequestRecord::api
inline constexpr std::string_view kHttp = "http";
inline constexpr std::string_view kJsonLines = "json_lines";

/// One request of a client, once its answer has ended: no keys, and nothing of prompts and outputs.
struct RequestRecord {
  std::chrono::system_clock::time_point time = std::chrono::system_clock::now();  ///< when it came
  std::chrono::steady_clock::time_point began = std::chrono::steady_clock::now();
  std::string_view api = kHttp;
  std::string request_id = {};
  std::string client = {};       ///< ADDRESS:PORT
  std::string tenant = {};       ///< the name of its key; empty: it has none
  std::string_view method = {};  ///< of HTTP
  std::string route = {};        ///< the pattern of HTTP, the op of JSON lines; empty: there is none such
  unsigned status = 0;           ///< of HTTP; kClientClosed where the client went before an answer began
  std::string_view error = {};   ///< of JSON lines: the code
  bool is_cut = false;           ///< the answer began, and the client went, or was cut off, before its end
  double total_ms = 0;
  std::optional<GenerationRecord> generation = {};
  std::optional<TraceParent> trace = {};

  /// As no status of HTTP says it; nginx has the number.
  static constexpr unsigned kClientClosed = 499;

  void end() { total_ms = std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - began).count(); }
};

/// Hears of every request once its answer has ended. Called on the I/O threads of several servers, which it must not
/// hold up.
class RequestObserver {
 public:
  virtual ~RequestObserver() = default;
  virtual void on_end(const RequestRecord& record) = 0;
  /// Metrics of its own.
  virtual void write(metrics::PrometheusText& text) const = 0;
};

using RequestObservers = std::vector<std::shared_ptr<RequestObserver>>;

}  // namespace pagoda::serving

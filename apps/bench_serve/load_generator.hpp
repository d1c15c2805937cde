#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "apps/bench_serve/completion_event.hpp"
#include "apps/bench_serve/http_connection.hpp"
#include "apps/bench_serve/workload.hpp"

namespace pagoda::bench_serve {

/// The parts that all requests to the server have in common.
struct RequestForm {
  EndpointType type = EndpointType::completions;
  std::string route;  ///< relative to the server's path, such as /v1/completions
  std::string model;
  std::string headers;            ///< whole lines, each with CR LF
  nlohmann::ordered_json fields;  ///< fields of the body beside the prompt and max_tokens

  /// Returns all bytes of one request.
  std::string request(const BaseUrl& url, const Prompt& prompt) const;
};

/// Number and times of requests, and the behaviour of their clients.
struct LoadPlan {
  double request_rate = std::numeric_limits<double>::infinity();  ///< requests a second; infinite: as soon as possible
  double burstiness = 1;                                          ///< as in class Arrivals
  /// Largest number of requests that were sent and have not ended; 0: no limit.
  std::int64_t max_concurrency = 0;
  std::int64_t num_prompts = 0;  ///< total number; 0: as many as come in duration_s
  /// Time in which requests come; 0: until num_prompts have come.
  double duration_s = 0;
  double slow_fraction = 0;  ///< share of requests whose clients read slow_bytes_per_s
  double slow_bytes_per_s = 0;
  double stalled_fraction = 0;  ///< share of requests whose clients read nothing, and leave when all others have ended
  double abort_fraction = 0;    ///< share of requests whose clients leave after a part of the answer, drawn at random
  std::uint64_t seed = 0;

  /// Returns whether requests come at fixed times, independent of earlier requests.
  bool is_open_loop() const { return request_rate < std::numeric_limits<double>::infinity(); }
};

/// Behaviour of a client with its answer.
enum class Client : std::uint8_t { reads, reads_slowly, never_reads, disconnects };

/// Result of a request.
enum class Outcome : std::uint8_t {
  completed,
  refused,  ///< 429 or 503
  failed,   ///< any other error; see `error`
  left,     ///< its client left
};

/// Record of one request. Times in seconds from the start of the run.
struct RequestRecord {
  Client client = Client::reads;
  Outcome outcome = Outcome::failed;
  /// Start of its latency: when it was due in an open loop, else when it was sent.
  double begin_s = 0;
  double sent_s = 0;   ///< when it was written to a connection
  double first_s = 0;  ///< time of its first content; 0 if there was none
  double last_s = 0;   ///< time of its last content
  double end_s = 0;
  std::vector<float> gaps_s = {};  ///< times between consecutive events with content
  std::int64_t prompt_tokens = 0;
  std::int64_t output_tokens = 0;  ///< as the server counts them, else the number of events with content
  int status = 0;
  bool has_retry_after = false;
  std::string error = {};
};

struct LoadRun {
  std::vector<RequestRecord> records = {};  ///< in the order in which they ended
  double duration_s = 0;                    ///< until the end of the last request that was read
  std::int64_t max_concurrent_requests = 0;
  bool was_interrupted = false;
};

/// Called with the finished `fraction` of the run, 0 .. 1, and the requests and tokens so far.
using LoadProgress = std::function<void(double fraction, std::int64_t requests, std::int64_t tokens)>;

/// Sends the load of `plan` and waits for its end, all on this thread. SIGINT ends it early.
LoadRun run_load(Server& server, const RequestForm& form, const LoadPlan& plan, Workload& workload,
                 const LoadProgress& progress);

/// Returns the body of GET `route`. Errors: io_failed, with the reason.
Result<std::string> fetch(Server& server, const std::string& route, const std::string& headers);

}  // namespace pagoda::bench_serve

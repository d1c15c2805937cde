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

/// What is asked of the server with every request.
struct RequestForm {
  EndpointType type = EndpointType::completions;
  std::string route;  ///< below the server's path, as /v1/completions
  std::string model;
  std::string headers;            ///< whole lines, each with its CR LF
  nlohmann::ordered_json fields;  ///< of the body, beside the prompt and max_tokens

  /// All bytes of one request.
  std::string request(const BaseUrl& url, const Prompt& prompt) const;
};

/// How many requests come when, and what becomes of them at the client's side.
struct LoadPlan {
  double request_rate = std::numeric_limits<double>::infinity();  ///< a second; infinite: as soon as they may
  double burstiness = 1;                                          ///< of class Arrivals
  std::int64_t max_concurrency = 0;                               ///< requests sent and not ended; 0: no limit
  std::int64_t num_prompts = 0;                                   ///< in all; 0: as many as come in duration_s
  double duration_s = 0;                                          ///< how long they come; 0: until num_prompts have
  double slow_fraction = 0;  ///< of the requests, whose clients read slow_bytes_per_s
  double slow_bytes_per_s = 0;
  double stalled_fraction = 0;  ///< whose clients read nothing, and go when all others have ended
  double abort_fraction = 0;    ///< whose clients go, when they have read a part drawn at random
  std::uint64_t seed = 0;

  /// Whether requests come at their time, whatever becomes of those before.
  bool is_open_loop() const { return request_rate < std::numeric_limits<double>::infinity(); }
};

/// What a client does with its answer.
enum class Client : std::uint8_t { reads, reads_slowly, never_reads, goes };

/// What became of a request.
enum class Outcome : std::uint8_t {
  completed,
  refused,  ///< 429 or 503
  failed,   ///< any other error; see `error`
  left,     ///< its client went
};

/// Times in seconds from the run's begin.
struct RequestRecord {
  Client client = Client::reads;
  Outcome outcome = Outcome::failed;
  double begin_s = 0;  ///< from where its latency counts: when it was due in an open loop, else when it was sent
  double sent_s = 0;   ///< when a connection had it
  double first_s = 0;  ///< its first content; 0 without one
  double last_s = 0;   ///< its last content
  double end_s = 0;
  std::vector<float> gaps_s = {};  ///< between one event with content and the next
  std::int64_t prompt_tokens = 0;
  std::int64_t output_tokens = 0;  ///< as the server counts them; where it does not, events with content
  int status = 0;
  bool has_retry_after = false;
  std::string error = {};
};

struct LoadRun {
  std::vector<RequestRecord> records = {};  ///< in the order of their ends
  double duration_s = 0;                    ///< up to the end of the last that was read
  std::int64_t max_concurrent_requests = 0;
  bool was_interrupted = false;
};

/// `fraction` of the run in 0 .. 1, and requests and tokens so far.
using LoadProgress = std::function<void(double fraction, std::int64_t requests, std::int64_t tokens)>;

/// Sends what `plan` says and waits for its end, all on this thread. SIGINT ends it early.
LoadRun run_load(Server& server, const RequestForm& form, const LoadPlan& plan, Workload& workload,
                 const LoadProgress& progress);

/// The body of GET `route`. Errors: io_failed, with what went wrong.
Result<std::string> fetch(Server& server, const std::string& route, const std::string& headers);

}  // namespace pagoda::bench_serve

#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "io/http/server_config.hpp"
#include "io/serving/served_models.hpp"

namespace pagoda::http {

/// A request to a route from the same process.
struct LocalRequest {
  std::string path;  ///< without a query
  std::string body;  ///< JSON
  std::string request_id;
};

/// The answer to a LocalRequest.
struct LocalAnswer {
  static constexpr unsigned kCutOff = 0;

  unsigned status = kCutOff;  ///< kCutOff: the answer was cut off
  std::string body;           ///< all events, if the answer is a stream
  std::int64_t completion_tokens = 0;
};

/// The HTTP APIs (docs/http.md) for a caller in the same process: the routes, parsers and writers of ApiServer without
/// sockets, keys and connections. Has its own I/O thread.
class LocalApi {
 public:
  /// The actor system must outlive the object. Settings of `config` that concern a transport have no effect.
  LocalApi(caf::actor_system& system, serving::ServedModels models, const ServerConfig& config);
  /// Aborts the live requests. Their callbacks are not called.
  ~LocalApi();

  /// Returns whether POST is served at `path`.
  bool serves(const std::string& path) const;

  /// Answers a POST. Thread-safe. Calls `on_answer` once, on the I/O thread.
  void post(LocalRequest request, std::function<void(LocalAnswer)> on_answer);

 private:
  class State;
  std::unique_ptr<State> state_;
};

}  // namespace pagoda::http

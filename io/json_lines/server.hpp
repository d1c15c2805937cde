#pragma once

/// The TCP server of the JSON-lines protocol: sockets on one I/O thread, one session per connection.

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>

#include "io/json_lines/server_config.hpp"
#include "io/serving/front_end.hpp"
#include "io/serving/recovery.hpp"
#include "io/serving/served_models.hpp"
#include "io/serving/telemetry.hpp"
#include "kernels/result.hpp"

namespace pagoda::json_lines {

/// Serves the engines behind request routers. Thread-safe. The actor system must outlive it.
class Server final : public serving::FrontEnd {
 public:
  /// Binds, listens and starts the I/O thread. Errors: bad_config (the first problem of config.validate(); an address
  /// that other machines can reach without API keys), io_failed (address in use, unknown host). Connections and
  /// requests are reported to `telemetry`. With `recovery`, the server continues the JSON-lines
  /// requests of `recovery` with the first model, and accepts clients when the recovery is complete.
  static Result<std::unique_ptr<Server>> start(caf::actor_system& system, serving::ServedModels models,
                                               ServerConfig config, std::shared_ptr<serving::Telemetry> telemetry = {},
                                               std::shared_ptr<serving::Recovery> recovery = {});

  /// Calls shutdown(0).
  ~Server() override;

  std::uint16_t port() const;
  /// Returns HOST:PORT as bound, with the real port.
  const std::string& address() const;

  /// Does nothing, because the router refuses new requests.
  void begin_drain() override {}
  void shutdown(std::chrono::milliseconds grace) override;

  std::size_t num_connections() const;

 private:
  class State;
  explicit Server(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace pagoda::json_lines

#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "io/http/routes.hpp"
#include "io/http/server_config.hpp"
#include "io/serving/front_end.hpp"
#include "io/serving/recovery.hpp"
#include "io/serving/served_models.hpp"
#include "io/serving/telemetry.hpp"
#include "kernels/result.hpp"

namespace pagoda::http {

using serving::ServedModel;
using serving::ServedModels;

/// The HTTP APIs (docs/http.md) in front of the request routers of models.
class ApiServer final : public serving::FrontEnd {
 public:
  /// Binds, listens and starts the I/O thread. The actor system must outlive the server. Errors: as of
  /// http::Server::start. `telemetry` may be shared with other servers of the process. With `recovery`, the server
  /// continues the HTTP requests of `recovery` with the first model, and accepts clients when the recovery is complete.
  static Result<std::unique_ptr<ApiServer>> start(caf::actor_system& system, ServedModels models, ServerConfig config,
                                                  std::shared_ptr<serving::Telemetry> telemetry = {},
                                                  std::shared_ptr<serving::Recovery> recovery = {});
  ~ApiServer() override;

  std::uint16_t port() const;
  /// Returns HOST:PORT as bound, with the real port.
  const std::string& address() const;
  std::size_t num_connections() const;
  const Routes& routes() const;

  void begin_drain() override;
  void shutdown(std::chrono::milliseconds grace) override;

 private:
  class State;
  explicit ApiServer(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace pagoda::http

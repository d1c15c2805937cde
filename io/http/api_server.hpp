#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "actors/interfaces.hpp"
#include "engine/stats.hpp"
#include "io/chat/chat_prompts.hpp"
#include "io/http/server_config.hpp"
#include "io/serving/front_end.hpp"
#include "io/serving/recovery.hpp"
#include "io/serving/telemetry.hpp"
#include "kernels/result.hpp"

namespace pagoda::http {

/// The served model as clients know it.
struct ServedModel {
  ModelInfo info;
  std::shared_ptr<const chat::ChatPrompts> chat = {};  ///< null: the model has no chat template
  std::int64_t max_queued_requests = std::numeric_limits<std::int64_t>::max();  ///< live ones that the engine takes
  std::vector<std::string> aliases = {};  ///< names beside info.name, under which it is served too
};

/// The HTTP APIs (docs/http.md) in front of a request router.
class ApiServer final : public serving::FrontEnd {
 public:
  /// Binds, listens and starts the I/O thread. The actor system must outlive it. Errors as http::Server::start.
  /// `telemetry`: of this and other servers of the process. `recovery`: those of its requests that came by HTTP are
  /// taken up, and clients are let in once it is complete.
  static Result<std::unique_ptr<ApiServer>> start(caf::actor_system& system, actors::RequestRouterActor router,
                                                  ServedModel model, ServerConfig config,
                                                  std::shared_ptr<serving::Telemetry> telemetry = {},
                                                  std::shared_ptr<serving::Recovery> recovery = {});
  ~ApiServer() override;

  std::uint16_t port() const;
  /// HOST:PORT as bound, with the real port.
  const std::string& address() const;
  std::size_t num_connections() const;

  void begin_drain() override;
  void shutdown(std::chrono::milliseconds grace) override;

 private:
  class State;
  explicit ApiServer(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace pagoda::http

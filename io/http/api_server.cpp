#include "io/http/api_server.hpp"

#include <deque>
#include <utility>

#include <boost/asio/post.hpp>

#include "io/http/api_parts.hpp"
#include "io/http/resumable_generation.hpp"
#include "io/http/server.hpp"

namespace pagoda::http {

class ApiServer::State {
 public:
  State(caf::actor_system& system, ServedModels models, const ServerConfig& config,
        std::shared_ptr<serving::Telemetry> telemetry)
      : parts(system, std::move(models), config, std::move(telemetry), [this] { begin_drain(); }) {}

  ~State() { shutdown(std::chrono::milliseconds(0)); }

  void begin_drain() {
    parts.context.is_draining = true;
    server->begin_drain();
  }

  void shutdown(std::chrono::milliseconds grace) {
    parts.context.is_draining = parts.context.is_ending = true;
    if (server) server->shutdown(grace);
    parts.end();
  }

  void take_up_all() {
    for (auto& request : recovery->requests_of(serving::Api::http)) {
      boost::asio::post(server->io(), [this, request = std::move(request)]() mutable {
        resume_recovered(parts.context, server->io(), std::move(request), [this] { recovery->on_settled(); });
      });
    }
  }

  ApiParts parts;
  std::shared_ptr<serving::Recovery> recovery;  ///< null: no recovery
  std::unique_ptr<Server> server;
  std::deque<serving::EngineWatch> engine_watches;
};

ApiServer::ApiServer(std::unique_ptr<State> state) : state_(std::move(state)) {}
ApiServer::~ApiServer() = default;

Result<std::unique_ptr<ApiServer>> ApiServer::start(caf::actor_system& system, ServedModels models, ServerConfig config,
                                                    std::shared_ptr<serving::Telemetry> telemetry,
                                                    std::shared_ptr<serving::Recovery> recovery) {
  auto state = std::make_unique<State>(system, std::move(models), config, std::move(telemetry));
  auto routes = state->parts.routes(config.page);
  auto server = Server::start(std::move(config), std::move(routes), state->parts.telemetry, recovery == nullptr);
  if (!server) return fail(std::move(server.error()));
  state->server = std::move(*server);
  state->engine_watches = state->parts.watch_engines(state->server->io());
  if (recovery) {
    state->recovery = recovery;
    state->take_up_all();
    recovery->on_complete([&server = *state->server] { server.let_in(); });
  }
  return std::unique_ptr<ApiServer>(new ApiServer(std::move(state)));
}

std::uint16_t ApiServer::port() const {
  return state_->server->port();
}

const std::string& ApiServer::address() const {
  return state_->server->address();
}

const Routes& ApiServer::routes() const {
  return state_->server->routes();
}

std::size_t ApiServer::num_connections() const {
  return state_->server->num_connections();
}

void ApiServer::begin_drain() {
  state_->begin_drain();
}

void ApiServer::shutdown(std::chrono::milliseconds grace) {
  state_->shutdown(grace);
}

}  // namespace pagoda::http

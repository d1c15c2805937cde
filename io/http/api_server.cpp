#include "io/http/api_server.hpp"

#include <ctime>
#include <deque>
#include <utility>

#include <boost/asio/post.hpp>

#include "io/http/admin_routes.hpp"
#include "io/http/anthropic/routes.hpp"
#include "io/http/api_context.hpp"
#include "io/http/metrics_routes.hpp"
#include "io/http/ollama/routes.hpp"
#include "io/http/openai/response_routes.hpp"
#include "io/http/openai/routes.hpp"
#include "io/http/page/routes.hpp"
#include "io/http/resumable_generation.hpp"
#include "io/http/server.hpp"
#include "io/http/status_routes.hpp"
#include "io/http/stream_routes.hpp"
#include "io/serving/engine_watch.hpp"

namespace pagoda::http {

class ApiServer::State {
 public:
  State(caf::actor_system& system, ServedModels models, const ServerConfig& config,
        std::shared_ptr<serving::Telemetry> server_telemetry)
      : telemetry(server_telemetry ? std::move(server_telemetry) : std::make_shared<serving::Telemetry>()),
        streams(config.resume),
        context{.system = system,
                .worker = worker,
                .engine_end = engine_end,
                .parsers = parsers,
                .streams = streams,
                .models = std::move(models),
                .created = std::time(nullptr),
                .telemetry = telemetry,
                .keys = config.keys,
                .reserve = config.reserve,
                .log_prompts = config.log_prompts,
                .drain = [this] { begin_drain(); }} {}

  ~State() { shutdown(std::chrono::milliseconds(0)); }

  Routes routes(bool has_page) {
    Routes all;
    if (has_page) page::add_routes(all, context);
    add_status_routes(all, context);
    add_admin_routes(all, context);
    add_metrics_routes(all, context);
    add_stream_routes(all, context);
    openai::add_routes(all, context);
    openai::add_response_routes(all, context, responses);
    anthropic::add_routes(all, context);
    ollama::add_routes(all, context);
    return all;
  }

  void begin_drain() {
    context.is_draining = true;
    server->begin_drain();
  }

  /// What the worker still prepares may post to the server's I/O, so the worker ends before the server goes.
  void shutdown(std::chrono::milliseconds grace) {
    context.is_draining = context.is_ending = true;
    if (server) server->shutdown(grace);
    worker.stop();  // nobody waits for what it has not begun
    worker.join();
    streams.close();  // there is no I/O thread any more
  }

  void take_up_all() {
    for (auto& request : recovery->requests_of(serving::Api::http)) {
      boost::asio::post(server->io(), [this, request = std::move(request)]() mutable {
        take_up(context, server->io(), std::move(request), [this] { recovery->settled(); });
      });
    }
  }

  std::shared_ptr<serving::Telemetry> telemetry;  ///< before the worker, whose jobs have metered bodies
  boost::asio::thread_pool worker{1};
  openai::ResponseStore responses;
  EngineEnd engine_end;
  JobParsers parsers;
  serving::ResumableStreams streams;
  ApiContext context;
  std::shared_ptr<serving::Recovery> recovery;  ///< null: there is none
  std::unique_ptr<Server> server;
  std::deque<serving::EngineWatch> engine_watches;
};

ApiServer::ApiServer(std::unique_ptr<State> state) : state_(std::move(state)) {}
ApiServer::~ApiServer() = default;

Result<std::unique_ptr<ApiServer>> ApiServer::start(caf::actor_system& system, ServedModels models, ServerConfig config,
                                                    std::shared_ptr<serving::Telemetry> telemetry,
                                                    std::shared_ptr<serving::Recovery> recovery) {
  auto state = std::make_unique<State>(system, std::move(models), config, std::move(telemetry));
  auto routes = state->routes(config.page);
  auto server = Server::start(std::move(config), std::move(routes), state->context.telemetry, recovery == nullptr);
  if (!server) return fail(std::move(server.error()));
  state->server = std::move(*server);
  for (const auto& model : state->context.models.all()) {
    state->engine_watches.emplace_back(state->server->io(), model.router,
                                       [&end = state->engine_end] { end.announce(); });
  }
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

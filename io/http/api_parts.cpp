#include "io/http/api_parts.hpp"

#include <ctime>
#include <utility>

#include "io/http/adapter_routes.hpp"
#include "io/http/admin_routes.hpp"
#include "io/http/anthropic/routes.hpp"
#include "io/http/metrics_routes.hpp"
#include "io/http/ollama/routes.hpp"
#include "io/http/openai/response_routes.hpp"
#include "io/http/openai/routes.hpp"
#include "io/http/page/routes.hpp"
#include "io/http/pooling_routes.hpp"
#include "io/http/sglang_routes.hpp"
#include "io/http/status_routes.hpp"
#include "io/http/stream_routes.hpp"

namespace pagoda::http {
namespace {

serving::ServedModels known_by(serving::ServedModels models, bool any_name) {
  if (any_name) models.take_any_name();
  return models;
}

}  // namespace

ApiParts::ApiParts(caf::actor_system& system, serving::ServedModels models, const ServerConfig& config,
                   std::shared_ptr<serving::Telemetry> server_telemetry, std::function<void()> drain)
    : telemetry(server_telemetry ? std::move(server_telemetry) : std::make_shared<serving::Telemetry>()),
      streams(config.resume),
      context{.system = system,
              .worker = worker,
              .engine_end = engine_end,
              .parsers = parsers,
              .streams = streams,
              .models = known_by(std::move(models), config.any_model_name),
              .created = std::time(nullptr),
              .telemetry = telemetry,
              .keys = config.keys,
              .reserve = config.reserve,
              .log_prompts = config.log_prompts,
              .unknown_fields = config.strict_fields ? wire::UnknownFields::refused : wire::UnknownFields::ignored,
              .drain = std::move(drain)} {}

Routes ApiParts::routes(bool has_page) {
  Routes all;
  if (has_page) page::add_routes(all, context);
  add_status_routes(all, context);
  add_admin_routes(all, context);
  add_adapter_routes(all, context);
  add_metrics_routes(all, context);
  add_stream_routes(all, context);
  openai::add_routes(all, context);
  openai::add_response_routes(all, context, responses);
  anthropic::add_routes(all, context);
  ollama::add_routes(all, context);
  add_sglang_routes(all, context);
  add_pooling_routes(all, context);
  return all;
}

std::deque<serving::EngineWatch> ApiParts::watch_engines(boost::asio::io_context& io) {
  std::deque<serving::EngineWatch> watches;
  for (const auto& model : context.models.all()) {
    watches.emplace_back(io, model.router, [&end = engine_end] { end.notify_all(); });
  }
  return watches;
}

void ApiParts::end() {
  worker.stop();  // jobs that have not begun are not needed any more
  worker.join();
  streams.close();  // the I/O thread has already ended
}

}  // namespace pagoda::http

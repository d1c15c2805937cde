#include "io/http/status_routes.hpp"

#include <chrono>
#include <string>
#include <utility>
#include <vector>

#include "io/http/engine_query.hpp"
#include "io/http/stats_sum.hpp"
#include "io/memory_reserve.hpp"
#include "io/version.hpp"
#include "io/wire/engine_facts.hpp"

namespace pagoda::http {
namespace {

constexpr auto kHealthDeadline = std::chrono::seconds(1);

void answer_status(Exchange& exchange, unsigned http_status, std::string_view status) {
  std::string out;
  wire::JsonWriter json(out);
  json.open_object().field("status", status).close_object();
  exchange.respond(http_status, "application/json", std::move(out));
}

std::string health_status(const EngineStats& stats) {
  return stats.health;
}

/// Returns the health, or "overloaded" if the router refuses new requests.
std::string readiness_status(const EngineStats& stats) {
  return stats.health == "ok" && stats.overloaded ? "overloaded" : stats.health;
}

/// Returns the status of the first model whose status is neither "ok" nor "overloaded", after the model's name if there
/// are several models. If there is no such model, returns "overloaded" if all models are overloaded, and "ok"
/// otherwise: an overloaded model refuses only its own requests.
std::string worst_status(const ApiContext& context, const std::vector<serving::Answer>& answers,
                         std::string (*status_of)(const EngineStats&)) {
  const auto& models = context.models.all();
  std::size_t num_overloaded = 0;
  for (std::size_t i = 0; i < models.size(); ++i) {
    const auto status = status_of(std::get<EngineStats>(answers[i]));
    if (status == "ok") continue;
    if (status != "overloaded") return context.models.are_several() ? models[i].info.name + ": " + status : status;
    ++num_overloaded;
  }
  return num_overloaded == models.size() ? "overloaded" : "ok";
}

/// Answers 200 if every engine answers and `status_of` of its stats is "ok". A model that is not loaded counts as "ok".
/// Each call also tries to refill the memory reserve, so that this does not depend on new requests.
void answer_health(const ApiContext& context, const std::shared_ptr<Exchange>& exchange,
                   std::string (*status_of)(const EngineStats&)) {
  if (context.reserve != nullptr) context.reserve->restore();
  const auto deadline = answer_within(
      kHealthDeadline, exchange, [](Exchange& waiting) { answer_status(waiting, 503, "the engine does not answer"); });
  query_all_models(
      context, exchange, actors::GetStats{},
      [&context, deadline, status_of](Exchange& answering, std::vector<serving::Answer>& answers) {
        deadline->cancel();
        const auto status = worst_status(context, answers, status_of);
        answer_status(answering, status == "ok" ? 200 : 503, status);
      },
      503);
}

void write_pool_facts(wire::JsonWriter& json, const serving::ServedModel& model) {
  const auto& residency = *model.residency;
  json.field("state", to_string(model.state())).field("memory_bytes", model.memory_bytes);
  json.field("waiting_for_model", residency.waiting.load()).field("loads_total", residency.loads.load());
  json.field("load_failures_total", residency.load_failures.load());
  json.field("unloads_total", residency.unloads.load());
}

void write_models(wire::JsonWriter& json, const ApiContext& context, const std::vector<serving::Answer>& answers) {
  json.key("models").open_array();
  for (std::size_t i = 0; i < answers.size(); ++i) {
    const auto& model = context.models.all()[i];
    json.open_object().field("model", model.info.name);
    write_pool_facts(json, model);
    wire::write_stats(json, std::get<EngineStats>(answers[i]));
    json.close_object();
  }
  json.close_array();
}

/// Answers with the sum of the stats of all models. If models are loaded on demand, also writes the state and the stats
/// of each model.
void answer_stats(const ApiContext& context, std::shared_ptr<Exchange> exchange) {
  query_all_models(context, std::move(exchange), actors::GetStats{},
                   [&context](Exchange& answering, std::vector<serving::Answer>& answers) {
                     std::string out;
                     wire::JsonWriter json(out);
                     json.open_object();
                     wire::write_stats(json, sum_of(answers));
                     if (context.models.is_pool()) write_models(json, context, answers);
                     json.close_object();
                     answering.respond(200, "application/json", std::move(out));
                   });
}

/// Answers with the endpoints of each replica, in the form of vLLM. No entries if no events are published.
void answer_kv_event_sources(const ApiContext& context, Exchange& exchange) {
  std::string out;
  wire::JsonWriter json(out);
  json.open_object();
  const kv_events::Config& config = context.telemetry->kv_events;
  const std::int64_t num_replicas = config.is_on ? context.models.first().info.num_replicas : 0;
  for (std::int32_t replica = 0; replica < num_replicas; ++replica) {
    json.key(std::to_string(replica)).open_object().field("enable_kv_cache_events", true).field("publisher", "zmq");
    json.field("endpoint", config.endpoint.of_replica(replica)).key("replay_endpoint");
    json.value_or_null(config.replay_endpoint.empty() ? "" : config.replay_endpoint.of_replica(replica));
    json.field("buffer_steps", config.buffer_steps).field("hwm", config.hwm);
    json.field("max_queue_size", config.max_queue_size).field("topic", config.topic);
    json.field("encoding", "msgpack").field("schema_version", 1).close_object();
  }
  json.close_object();
  exchange.respond(200, "application/json", std::move(out));
}

void answer_version(Exchange& exchange) {
  std::string out;
  wire::JsonWriter json(out);
  json.open_object().field("version", version()).close_object();
  exchange.respond(200, "application/json", std::move(out));
}

}  // namespace

void add_status_routes(Routes& routes, const ApiContext& context) {
  const auto get = [&](const char* path, Access access, Handler handler) {
    routes.add(Verb::get, path, access, std::move(handler), ConnectionQuota::spare);
  };
  for (const char* path : {"/health", "/health_generate"}) {
    get(path, Access::open,
        [&context](const auto& exchange, const Request&) { answer_health(context, exchange, health_status); });
  }
  get("/ready", Access::open, [&context](const auto& exchange, const Request&) {
    if (context.is_draining) return answer_status(*exchange, 503, "draining");
    answer_health(context, exchange, readiness_status);
  });
  get("/version", Access::open, [](const auto& exchange, const Request&) { answer_version(*exchange); });
  get("/kv_event_sources", Access::key,
      [&context](const auto& exchange, const Request&) { answer_kv_event_sources(context, *exchange); });
  get("/stats", Access::key, [&context](const auto& exchange, const Request&) { answer_stats(context, exchange); });
}

}  // namespace pagoda::http

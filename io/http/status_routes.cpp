#include "io/http/status_routes.hpp"

#include <chrono>
#include <string>
#include <utility>

#include "io/http/inquiry.hpp"
#include "io/version.hpp"
#include "io/wire/engine_facts.hpp"

namespace pagoda::http {
namespace {

constexpr auto kHealthDeadline = std::chrono::seconds(1);

void answer_status(Exchange& exchange, unsigned status, std::string_view word) {
  std::string out;
  wire::JsonWriter json(out);
  json.open_object().field("status", word).close_object();
  exchange.respond(status, "application/json", std::move(out));
}

std::string_view word_of_health(const EngineStats& stats) {
  return stats.health;
}

/// Also whether the router takes new requests.
std::string_view word_of_readiness(const EngineStats& stats) {
  return stats.health == "ok" && stats.overloaded ? std::string_view("overloaded") : stats.health;
}

/// 200 while the engine answers and `word_of` its stats is "ok".
void answer_health(const ApiContext& context, const std::shared_ptr<Exchange>& exchange,
                   std::string_view (*word_of)(const EngineStats&)) {
  const auto deadline = answer_within(
      kHealthDeadline, exchange, [](Exchange& waiting) { answer_status(waiting, 503, "the engine does not answer"); });
  inquire(
      context, exchange, actors::GetStats{},
      [deadline, word_of](Exchange& answering, serving::Answer& answer) {
        deadline->cancel();
        const auto word = word_of(std::get<EngineStats>(answer));
        answer_status(answering, word == "ok" ? 200 : 503, word);
      },
      503);
}

void answer_stats(const ApiContext& context, std::shared_ptr<Exchange> exchange) {
  inquire(context, std::move(exchange), actors::GetStats{}, [](Exchange& answering, serving::Answer& answer) {
    std::string out;
    wire::JsonWriter json(out);
    json.open_object();
    wire::write_stats(json, std::get<EngineStats>(answer));
    json.close_object();
    answering.respond(200, "application/json", std::move(out));
  });
}

void answer_version(Exchange& exchange) {
  std::string out;
  wire::JsonWriter json(out);
  json.open_object().field("version", version()).close_object();
  exchange.respond(200, "application/json", std::move(out));
}

}  // namespace

void add_status_routes(Routes& routes, const ApiContext& context) {
  routes.add(Verb::get, "/health", Access::everybody,
             [&context](const auto& exchange, const Request&) { answer_health(context, exchange, word_of_health); });
  routes.add(Verb::get, "/ready", Access::everybody, [&context](const auto& exchange, const Request&) {
    if (context.is_draining) return answer_status(*exchange, 503, "draining");
    answer_health(context, exchange, word_of_readiness);
  });
  routes.add(Verb::get, "/version", Access::everybody,
             [](const auto& exchange, const Request&) { answer_version(*exchange); });
  routes.add(Verb::get, "/stats", Access::key,
             [&context](const auto& exchange, const Request&) { answer_stats(context, exchange); });
}

}  // namespace pagoda::http

#include "io/http/status_routes.hpp"

#include <chrono>
#include <string>
#include <utility>
#include <vector>

#include "io/http/inquiry.hpp"
#include "io/http/stats_sum.hpp"
#include "io/memory_reserve.hpp"
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

std::string word_of_health(const EngineStats& stats) {
  return stats.health;
}

/// Returns the health, or "overloaded" if the router refuses new requests.
std::string word_of_readiness(const EngineStats& stats) {
  return stats.health == "ok" && stats.overloaded ? "overloaded" : stats.health;
}

/// Returns the word of the first model whose word is neither "ok" nor "overloaded", after the model's name if there are
/// several models. If there is none, returns "overloaded" if all models are overloaded, and "ok" otherwise: an
/// overloaded model refuses only its own requests.
std::string worst_word(const ApiContext& context, const std::vector<serving::Answer>& answers,
                       std::string (*word_of)(const EngineStats&)) {
  const auto& models = context.models.all();
  std::size_t num_overloaded = 0;
  for (std::size_t i = 0; i < models.size(); ++i) {
    const auto word = word_of(std::get<EngineStats>(answers[i]));
    if (word == "ok") continue;
    if (word != "overloaded") return context.models.are_several() ? models[i].info.name + ": " + word : word;
    ++num_overloaded;
  }
  return num_overloaded == models.size() ? "overloaded" : "ok";
}

/// Answers 200 if every engine answers and `word_of` of its stats is "ok". A model that is not loaded counts as "ok".
/// Each call also tries to refill the memory reserve, so that this does not depend on new requests.
void answer_health(const ApiContext& context, const std::shared_ptr<Exchange>& exchange,
                   std::string (*word_of)(const EngineStats&)) {
  if (context.reserve != nullptr) context.reserve->restore();
  const auto deadline = answer_within(
      kHealthDeadline, exchange, [](Exchange& waiting) { answer_status(waiting, 503, "the engine does not answer"); });
  inquire_of_all(
      context, exchange, actors::GetStats{},
      [&context, deadline, word_of](Exchange& answering, std::vector<serving::Answer>& answers) {
        deadline->cancel();
        const auto word = worst_word(context, answers, word_of);
        answer_status(answering, word == "ok" ? 200 : 503, word);
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
  inquire_of_all(context, std::move(exchange), actors::GetStats{},
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

void answer_version(Exchange& exchange) {
  std::string out;
  wire::JsonWriter json(out);
  json.open_object().field("version", version()).close_object();
  exchange.respond(200, "application/json", std::move(out));
}

}  // namespace

void add_status_routes(Routes& routes, const ApiContext& context) {
  const auto get = [&](const char* path, Access access, Handler handler) {
    routes.add(Verb::get, path, access, std::move(handler), Room::spare);
  };
  get("/health", Access::everybody,
      [&context](const auto& exchange, const Request&) { answer_health(context, exchange, word_of_health); });
  get("/ready", Access::everybody, [&context](const auto& exchange, const Request&) {
    if (context.is_draining) return answer_status(*exchange, 503, "draining");
    answer_health(context, exchange, word_of_readiness);
  });
  get("/version", Access::everybody, [](const auto& exchange, const Request&) { answer_version(*exchange); });
  get("/stats", Access::key, [&context](const auto& exchange, const Request&) { answer_stats(context, exchange); });
}

}  // namespace pagoda::http

#include "io/http/admin_routes.hpp"

#include <charconv>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include <spdlog/spdlog.h>

#include "io/http/body.hpp"
#include "io/http/engine_query.hpp"
#include "io/http/error_answer.hpp"
#include "io/wire/engine_facts.hpp"
#include "io/wire/json_writer.hpp"

namespace pagoda::http {
namespace {

/// Returns the name of the key's owner, for the log.
std::string_view name_of(const Request& request) {
  const auto& name = request.principal->tenant.name;
  return name.empty() ? std::string_view("an admin key") : std::string_view(name);
}

template <class Write>
void answer_object(Exchange& exchange, Write write) {
  std::string out;
  wire::JsonWriter json(out);
  json.open_object();
  write(json);
  json.close_object();
  exchange.respond(200, "application/json", std::move(out));
}

/// Refuses a body with fields: admin requests have none. Returns whether it has answered the exchange.
bool has_fields(Exchange& exchange, const Request& request) {
  const bool is_empty = request.body.find_first_not_of(" \t\r\n") == std::string::npos || request.body == "{}";
  if (!is_empty) exchange.respond_error(invalid_request("this request takes no fields"));
  return !is_empty;
}

/// `model` is set if several models are served, because each has its own request ids.
void write_request(wire::JsonWriter& list, const LiveRequest& request, const std::string* model) {
  list.open_object().field("id", request.id);
  if (model != nullptr) list.field("model", *model);
  list.key("request_id").value_or_null(request.request_id);
  list.key("tenant")
      .value_or_null(request.user)
      .key("adapter")
      .value_or_null(request.adapter)
      .field("state", to_string(request.state));
  list.field("prompt_tokens", request.prompt_tokens).field("generated_tokens", request.generated_tokens);
  list.field("age_s", request.age_s);
  if (request.replica >= 0) list.field("replica", request.replica);
  list.close_object();
}

void list_requests(const ApiContext& context, std::shared_ptr<Exchange> exchange) {
  query_all_models(context, std::move(exchange), actors::ListRequests{},
                   [&context](Exchange& answering, auto& answers) {
                     answer_object(answering, [&](wire::JsonWriter& json) {
                       json.key("requests").open_array();
                       for (std::size_t i = 0; i < answers.size(); ++i) {
                         const auto* name = context.models.is_pool() ? &context.models.all()[i].info.name : nullptr;
                         for (const auto& request : std::get<actors::RequestList>(answers[i]).requests) {
                           write_request(json, request, name);
                         }
                       }
                       json.close_array();
                     });
                   });
}

template <class Id>
std::optional<Id> id_of(std::string_view text) {
  Id id = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), id);
  return error == std::errc() && end == text.data() + text.size() ? std::optional(id) : std::nullopt;
}

/// Returns the request that the path names. Without one, answers with an error.
std::optional<RequestId> request_of(const ApiContext& context, Exchange& exchange, const Request& request) {
  const auto id = id_of<RequestId>(find_value(request.params, "id"));
  if (!id) {
    exchange.respond_error(
        invalid_request("id must be the number of a live request; GET /admin/requests lists them", "id"));
  } else if (context.models.are_several() && find_value(request.query, "model").empty()) {
    exchange.respond_error(invalid_request(
        "each model numbers its own requests: add ?model=NAME; GET /admin/requests lists ids and models", "model"));
    return std::nullopt;
  }
  return id;
}

void cancel_request(const ApiContext& context, std::shared_ptr<Exchange> exchange, const Request& request) {
  const auto id = request_of(context, *exchange, request);
  if (!id) return;
  const auto model = model_of_query(context, request);
  if (!model) return exchange->respond_error(model.error());
  spdlog::info("{} cancels request {}", name_of(request), *id);
  query_model(
      context, **model, std::move(exchange), actors::AbortRequest{*id},
      [id = *id](Exchange& answering, serving::Answer& answer) {
        if (!std::get<actors::CancelReply>(answer).found) {
          return answering.respond_error({404, "no live request has the id " + std::to_string(id), "id", "not_found"});
        }
        answer_object(answering, [&](wire::JsonWriter& json) { json.field("id", id).field("cancelled", true); });
      });
}

/// Answers when the request is at the other replica.
void migrate_request(const ApiContext& context, std::shared_ptr<Exchange> exchange, const Request& request) {
  if (has_fields(*exchange, request)) return;
  const auto id = request_of(context, *exchange, request);
  if (!id) return;
  const auto replica = id_of<ReplicaId>(find_value(request.query, "replica"));
  if (!replica) {
    return exchange->respond_error(
        invalid_request("replica must be the number of a replica; GET /admin/replicas lists them", "replica"));
  }
  const auto model = model_of_query(context, request);
  if (!model) return exchange->respond_error(model.error());
  query_model(context, **model, std::move(exchange), actors::MigrateRequest{*id, *replica},
              [id = *id, replica = *replica, name = std::string(name_of(request))](Exchange& answering, auto&) {
                spdlog::info("{} moves request {} to replica {}", name, id, replica);
                answer_object(answering,
                              [&](wire::JsonWriter& json) { json.field("id", id).field("replica", replica); });
              });
}

void list_replicas(const ApiContext& context, std::shared_ptr<Exchange> exchange) {
  query_all_models(context, std::move(exchange), actors::GetStats{}, [&context](Exchange& answering, auto& answers) {
    answer_object(answering, [&](wire::JsonWriter& json) {
      json.key("replicas").open_array();
      for (std::size_t i = 0; i < answers.size(); ++i) {
        for (const ReplicaStats& replica : std::get<EngineStats>(answers[i]).replicas) {
          json.open_object();
          if (context.models.is_pool()) json.field("model", context.models.all()[i].info.name);
          wire::write_replica(json, replica);
          json.close_object();
        }
      }
      json.close_array();
    });
  });
}

/// Returns the replica that the path names. Without one, answers with an error.
std::optional<ReplicaId> replica_of(Exchange& exchange, const Request& request) {
  const auto id = id_of<ReplicaId>(find_value(request.params, "id"));
  if (!id) {
    exchange.respond_error(
        invalid_request("id must be the number of a replica; GET /admin/replicas lists them", "replica"));
  }
  return id;
}

/// Passes a change of a replica on to its model. The answer has the status, which GET /admin/replicas then shows.
template <class Change>
void change_replica(const ApiContext& context, std::shared_ptr<Exchange> exchange, const Request& request,
                    const Change& change, const char* status) {
  const auto model = model_of_query(context, request);
  if (!model) return exchange->respond_error(model.error());
  query_model(context, **model, std::move(exchange), change,
              [id = change.replica, status, name = std::string(name_of(request))](Exchange& answering, auto&) {
                spdlog::info("{}: replica {} is {}", name, id, status);
                answer_object(answering,
                              [&](wire::JsonWriter& json) { json.field("replica", id).field("status", status); });
              });
}

/// Answers when the start has begun; the replica takes requests when it has loaded its model.
void start_replica(const ApiContext& context, std::shared_ptr<Exchange> exchange, const Request& request) {
  if (has_fields(*exchange, request)) return;
  const auto id = replica_of(*exchange, request);
  if (!id) return;
  change_replica(context, std::move(exchange), request, actors::StartReplica{*id, /*waits=*/false}, "starting");
}

/// Answers when the replica takes no new requests. It ends when its requests have ended, or have moved.
void drain_replica(const ApiContext& context, std::shared_ptr<Exchange> exchange, const Request& request) {
  if (has_fields(*exchange, request)) return;
  const auto id = replica_of(*exchange, request);
  if (!id) return;
  const std::string_view moves = find_value(request.query, "move_requests");
  if (!moves.empty() && moves != "true" && moves != "false") {
    return exchange->respond_error(invalid_request("move_requests must be true or false", "move_requests"));
  }
  change_replica(context, std::move(exchange), request,
                 actors::DrainReplica{*id, /*waits=*/false, /*moves_requests=*/moves == "true"}, "draining");
}

void reset_prefix_cache(const ApiContext& context, std::shared_ptr<Exchange> exchange, const Request& request) {
  if (has_fields(*exchange, request)) return;
  spdlog::info("{} resets the prefix cache", name_of(request));
  query_all_models(context, std::move(exchange), actors::ResetPrefixCache{}, [](Exchange& answering, auto&) {
    answer_object(answering, [](wire::JsonWriter& json) { json.field("reset", true); });
  });
}

/// Runs the first step of the shutdown sequence. Signals start the next steps.
void drain(const ApiContext& context, std::shared_ptr<Exchange> exchange, const Request& request) {
  if (has_fields(*exchange, request)) return;
  if (!context.is_draining) spdlog::info("{} drains the server: new requests are refused", name_of(request));
  context.drain();
  for (const auto& model : context.models.all()) {
    actors::send_anonymously(model.router, actors::Drain{actors::Drain::kNoTimeout});
  }
  query_all_models(context, std::move(exchange), actors::ListRequests{}, [](Exchange& answering, auto& answers) {
    std::size_t num_live = 0;
    for (const auto& answer : answers) num_live += std::get<actors::RequestList>(answer).requests.size();
    answer_object(answering,
                  [&](wire::JsonWriter& json) { json.field("status", "draining").field("live_requests", num_live); });
  });
}

}  // namespace

void add_admin_routes(Routes& routes, const ApiContext& context) {
  routes.add(Verb::get, "/admin/requests", Access::admin,
             [&context](const auto& exchange, const Request&) { list_requests(context, exchange); });
  routes.add(Verb::delete_, "/admin/requests/{id}", Access::admin,
             [&context](const auto& exchange, const Request& request) { cancel_request(context, exchange, request); });
  routes.add(Verb::post, "/admin/requests/{id}/migrate", Access::admin,
             [&context](const auto& exchange, const Request& request) { migrate_request(context, exchange, request); });
  routes.add(Verb::get, "/admin/replicas", Access::admin,
             [&context](const auto& exchange, const Request&) { list_replicas(context, exchange); });
  routes.add(Verb::post, "/admin/replicas/{id}/drain", Access::admin,
             [&context](const auto& exchange, const Request& request) { drain_replica(context, exchange, request); });
  routes.add(Verb::post, "/admin/replicas/{id}/start", Access::admin,
             [&context](const auto& exchange, const Request& request) { start_replica(context, exchange, request); });
  routes.add(Verb::post, "/admin/drain", Access::admin,
             [&context](const auto& exchange, const Request& request) { drain(context, exchange, request); });
  for (const char* path : {"/admin/reset_prefix_cache", "/flush_cache"}) {
    routes.add(Verb::post, path, Access::admin, [&context](const auto& exchange, const Request& request) {
      reset_prefix_cache(context, exchange, request);
    });
  }
}

}  // namespace pagoda::http

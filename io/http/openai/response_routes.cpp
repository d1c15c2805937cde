#include "io/http/openai/response_routes.hpp"

#include <string>
#include <utility>
#include <variant>

#include "io/http/body.hpp"
#include "io/http/engine_query.hpp"
#include "io/http/gate.hpp"
#include "io/http/openai/render.hpp"
#include "io/http/openai/responses.hpp"
#include "io/serving/small_text.hpp"
#include "io/wire/json_writer.hpp"

namespace pagoda::http::openai {
namespace {

std::string id_of(const Request& request) {
  return std::string(find_value(request.params, "id"));
}

ErrorAnswer no_such_response(const std::string& id) {
  return {404, "Response with id '" + id + "' not found."};
}

/// Answers with a stored response. A replay of its events as a stream is not supported.
void show(const ResponseStore& store, Exchange& exchange, const Request& request) {
  for (const auto& [name, value] : request.query) {
    if (name == "stream" && (value == "false" || value == "False")) continue;
    return exchange.respond_error(invalid_request(name + " is not supported", name));
  }
  const auto stored = store.find(ResponseStore::owner_of(request), id_of(request));
  if (!stored) return exchange.respond_error(no_such_response(id_of(request)));
  exchange.respond(200, "application/json", stored->body);
}

void remove(ResponseStore& store, Exchange& exchange, const Request& request) {
  const auto id = id_of(request);
  if (!store.erase(ResponseStore::owner_of(request), id)) return exchange.respond_error(no_such_response(id));
  std::string out;
  wire::JsonWriter json(out);
  json.open_object().field("id", id).field("object", "response").field("deleted", true).close_object();
  exchange.respond(200, "application/json", std::move(out));
}

/// Refuses to cancel: only responses in the background could be cancelled by id. A synchronous response ends when its
/// client disconnects.
void cancel(const ResponseStore& store, Exchange& exchange, const Request& request) {
  if (!store.find(ResponseStore::owner_of(request), id_of(request))) {
    return exchange.respond_error(no_such_response(id_of(request)));
  }
  exchange.respond_error(invalid_request("Cannot cancel a synchronous response."));
}

void answer_input_tokens(Exchange& exchange, serving::Answer& ids) {
  std::string out;
  wire::JsonWriter json(out);
  json.open_object().field("object", "response.input_tokens");
  json.field("input_tokens", std::get<TokenIds>(ids).size()).close_object();
  exchange.respond(200, "application/json", std::move(out));
}

/// Returns whether a small body may continue a stored conversation, which may be long. The field's name may be written
/// with escapes. A large body is not searched, because the worker thread parses it in any case.
bool may_go_on_from_another(const Request& request) {
  if (request.body.size() > serving::kSmallTextBytes) return false;
  return request.body.find("previous_response_id") != std::string::npos ||
         request.body.find("\\u") != std::string::npos;
}

/// Adds POST /v1/responses/input_tokens, which counts the prompt tokens of a body of /v1/responses.
void add_input_tokens(Routes& routes, const ApiContext& context, ParseJob parse) {
  const auto parse_question = [parse = std::move(parse)](
                                  const serving::ServedModel& model, const wire::Json& body,
                                  const Request& request) -> tl::expected<actors::TokenizeRequest, ErrorAnswer> {
    auto job = parse(model, body, request);
    if (!job) return tl::unexpected(std::move(job.error()));
    return tokens_of_prompt(std::move(job->requests.front()));
  };
  routes.add(Verb::post, "/v1/responses/input_tokens", Access::key,
             reading_request(
                 context, parse_question,
                 [&context](const serving::ServedModel& model, auto exchange, auto question) {
                   query_model(context, model, std::move(exchange), std::move(question), answer_input_tokens);
                 },
                 may_go_on_from_another));
}

}  // namespace

void add_response_routes(Routes& routes, const ApiContext& context, ResponseStore& store) {
  const auto parse = [&store](const serving::ServedModel& model, const wire::Json& body,
                              const Request& request) -> ParsedJob {
    if (!model.chat) {
      auto answer = no_chat_template();
      answer.param = "input";
      return tl::unexpected(std::move(answer));
    }
    // The id is the server's own: the id gives access to the stored response, and a client's id may be used twice.
    return parse_response(body, *model.chat, store, ResponseStore::owner_of(request),
                          {request.own_id, model.info.name, request.created}, model.info.sampling_defaults);
  };
  routes.add(Verb::post, "/v1/responses", Access::key,
             generating(context, "/v1/responses", parse, may_go_on_from_another));
  add_input_tokens(routes, context, parse);
  add_render_route(routes, context, "/v1/responses", parse, "resp_", /*is_list=*/false, may_go_on_from_another);
  routes.add(Verb::get, "/v1/responses/{id}", Access::key,
             [&store](const auto& exchange, const Request& request) { show(store, *exchange, request); });
  routes.add(Verb::delete_, "/v1/responses/{id}", Access::key,
             [&store](const auto& exchange, const Request& request) { remove(store, *exchange, request); });
  routes.add(Verb::post, "/v1/responses/{id}/cancel", Access::key,
             [&store](const auto& exchange, const Request& request) { cancel(store, *exchange, request); });
}

}  // namespace pagoda::http::openai

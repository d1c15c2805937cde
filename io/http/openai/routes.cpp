#include "io/http/openai/routes.hpp"

#include <string>
#include <utility>

#include "io/http/body.hpp"
#include "io/http/openai/chat.hpp"
#include "io/http/openai/completions.hpp"
#include "io/http/openai/render.hpp"
#include "io/http/openai/tokens.hpp"

namespace pagoda::http::openai {
namespace {

Head head_of(const serving::ServedModel& model, const char* prefix, const Request& request) {
  return {prefix + request.request_id, model.info.name, request.created};
}

void write_model(wire::JsonWriter& json, const ApiContext& context, const serving::ServedModel& model,
                 const std::string& name, const std::string& root) {
  json.open_object().field("id", name).field("object", "model").field("created", context.created);
  json.field("owned_by", "pagoda").field("root", root).key("parent").value_or_null(model.parent);
  json.field("max_model_len", model.info.max_model_len);
  if (context.models.is_pool()) json.field("state", to_string(model.state()));
  json.close_object();
}

void list_models(const ApiContext& context, Exchange& exchange) {
  std::string out;
  wire::JsonWriter json(out);
  json.open_object().field("object", "list").key("data").open_array();
  for (const auto& model : context.models.all()) {
    for (const auto& name : model.names()) write_model(json, context, model, name, model.info.name);
    if (model.adapters == nullptr) continue;
    for (const auto& adapter : model.adapters->list()) {
      write_model(json, context, model.with_adapter(adapter.name), adapter.name, adapter.path);
    }
  }
  json.close_array().close_object();
  exchange.respond(200, "application/json", std::move(out));
}

void show_model(const ApiContext& context, Exchange& exchange, const std::string& name) {
  const auto model = context.models.find(name);
  if (model == nullptr) return exchange.respond_error(no_such_model(context, name));
  std::string root = model->info.name;
  if (!model->parent.empty()) {
    for (const auto& adapter : model->adapters->list()) {
      if (adapter.name == model->info.name) root = adapter.path;
    }
  }
  std::string out;
  wire::JsonWriter json(out);
  write_model(json, context, *model, name, root);
  exchange.respond(200, "application/json", std::move(out));
}

}  // namespace

void add_routes(Routes& routes, const ApiContext& context) {
  using serving::ServedModel;
  const ParseJob completion = [](const ServedModel& model, const wire::Json& body, const Request& request) {
    return parse_completion(body, head_of(model, "cmpl-", request), model.max_queued_requests);
  };
  const ParseJob chat = [](const ServedModel& model, const wire::Json& body, const Request& request) -> ParsedJob {
    if (!model.chat) return tl::unexpected(no_chat_template());
    return parse_chat(body, *model.chat, head_of(model, "chatcmpl-", request));
  };
  routes.add(Verb::post, "/v1/completions", Access::key, generating(context, "/v1/completions", completion));
  routes.add(Verb::post, "/v1/chat/completions", Access::key, generating(context, "/v1/chat/completions", chat));
  add_render_route(routes, context, "/v1/completions", completion, "cmpl-", /*is_list=*/true);
  add_render_route(routes, context, "/v1/chat/completions", chat, "chatcmpl-", /*is_list=*/false);
  routes.add(Verb::get, "/v1/models", Access::key,
             [&context](const auto& exchange, const Request&) { list_models(context, *exchange); });
  routes.add(Verb::get, "/v1/models/{id*}", Access::key, [&context](const auto& exchange, const Request& request) {
    show_model(context, *exchange, std::string(find_value(request.params, "id")));
  });
  add_token_routes(routes, context);
}

}  // namespace pagoda::http::openai

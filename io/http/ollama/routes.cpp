#include "io/http/ollama/routes.hpp"

#include <string>
#include <utility>
#include <variant>

#include "io/http/body.hpp"
#include "io/http/ollama/chat.hpp"
#include "io/http/ollama/generate.hpp"
#include "io/http/ollama/model_names.hpp"
#include "io/http/ollama/models.hpp"

namespace pagoda::http::ollama {
namespace {

using wire::Json;

void answer(Exchange& exchange, std::string body) {
  exchange.respond(200, "application/json", std::move(body));
}

/// A handler that makes a turn of the body with `parse(body, model)` and runs it.
template <class Parse>
Handler taking_turns(const ApiContext& context, Parse parse) {
  return [&context, parse](std::shared_ptr<Exchange> exchange, Request request) {
    if (refused_by_drain(context, *exchange)) return;
    const auto body_bytes = request.body.size();
    auto holder = request.holder;
    auto prepare = [&context, parse, text = std::move(request.body)]() -> ParsedTurn {
      const auto body = read_object(text);
      if (!body) return tl::unexpected(body.error());
      auto model = read_model_name(context, *body);
      if (!model) return tl::unexpected(std::move(model.error()));
      return parse(*body, std::move(*model));
    };
    prepared(context, body_bytes, std::move(exchange), std::move(prepare),
             [&context, holder = std::move(holder)](auto answering, auto turn) {
               if (!turn) return answering->respond_error(turn.error());
               if (auto* loaded = std::get_if<Loaded>(&*turn)) return answer(*answering, std::move(loaded->answer));
               run_generation(context, std::move(answering), std::get<GenerationJob>(std::move(*turn)), holder);
             });
  };
}

tl::expected<std::string, ErrorAnswer> show(const ApiContext& context, std::string_view text) {
  const auto body = read_object(text);
  if (!body) return tl::unexpected(body.error());
  if (auto model = read_model_name(context, *body); !model) return tl::unexpected(std::move(model.error()));
  wire::FieldReader fields(*body, wire::FieldReader::Nulls::absent);
  for (const char* name : {"model", "name", "verbose"}) fields.skip(name);
  for (const char* name : {"system", "template", "options"}) refuse_unless_empty(fields, name, "the model is as it is");
  if (auto status = fields.finish(); !status) return tl::unexpected(error_answer(status.error()));
  return show_model(context);
}

}  // namespace

void answer_is_running(Exchange& exchange) {
  exchange.respond(200, "text/plain; charset=utf-8", "Ollama is running", {{"vary", "accept"}});
}

void add_routes(Routes& routes, const ApiContext& context) {
  routes.add(Verb::post, "/api/generate", Access::key, taking_turns(context, [&](const Json& body, std::string model) {
               return parse_generate(body, context.chat.get(), std::move(model));
             }));
  routes.add(Verb::post, "/api/chat", Access::key,
             taking_turns(context, [&](const Json& body, std::string model) -> ParsedTurn {
               if (!context.chat) return tl::unexpected(no_chat_template());
               return parse_chat(body, *context.chat, std::move(model));
             }));
  routes.add(Verb::post, "/api/show", Access::key, [&context](std::shared_ptr<Exchange> exchange, Request request) {
    const auto body_bytes = request.body.size();
    prepared(
        context, body_bytes, std::move(exchange),
        [&context, text = std::move(request.body)] { return show(context, text); },
        [](const auto& answering, auto shown) {
          shown ? answer(*answering, std::move(*shown)) : answering->respond_error(shown.error());
        });
  });
  routes.add(Verb::get, "/api/tags", Access::key,
             [&context](const auto& exchange, const Request&) { answer(*exchange, list_models(context)); });
  routes.add(Verb::get, "/api/ps", Access::key,
             [&context](const auto& exchange, const Request&) { answer(*exchange, list_running(context)); });
  routes.add(Verb::get, "/api/version", Access::everybody,
             [](const auto& exchange, const Request&) { answer(*exchange, version_answer()); });
  routes.add(Verb::get, "/", Access::everybody,
             [](const auto& exchange, const Request&) { answer_is_running(*exchange); });
}

}  // namespace pagoda::http::ollama

#include "io/http/ollama/routes.hpp"

#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <variant>

#include "io/http/body.hpp"
#include "io/http/engine_query.hpp"
#include "io/http/ollama/chat.hpp"
#include "io/http/ollama/generate.hpp"
#include "io/http/ollama/keep_alive.hpp"
#include "io/http/ollama/model_names.hpp"
#include "io/http/ollama/models.hpp"

namespace pagoda::http::ollama {
namespace {

using wire::Json;

void answer(Exchange& exchange, std::string body) {
  exchange.respond(200, "application/json", std::move(body));
}

/// A parsed body: the turn, its model, and how long the model must stay loaded.
struct ParsedBody {
  ParsedTurn turn;
  serving::SharedModel model = {};
  std::optional<TimeUs> keep_alive_us = {};
};

/// Returns a function that sets how long the model stays loaded. Call it after the requests are sent; otherwise an idle
/// model could be unloaded before it is used.
std::function<void()> keeping_alive(const ParsedBody& parsed) {
  if (!parsed.model->keep_alive || !parsed.keep_alive_us) return {};
  return [set_keep_alive = parsed.model->keep_alive, time_us = *parsed.keep_alive_us] { set_keep_alive(time_us); };
}

/// Handles a request without a prompt: loads the model and answers when it is loaded or, with keep_alive 0, unloads it.
/// A model without keep_alive always stays loaded.
void load(const ApiContext& context, const std::shared_ptr<Exchange>& exchange, const ParsedBody& parsed,
          Loaded loaded) {
  const bool stays = !parsed.model->keep_alive;
  if (stays) return answer(*exchange, std::move(loaded.answer));
  if (parsed.keep_alive_us == 0) {
    parsed.model->keep_alive(0);
    return answer(*exchange, std::move(loaded.unload_answer));
  }
  query_model(
      context, *parsed.model, exchange, actors::TokenizeRequest{" ", false},
      [text = std::move(loaded.answer)](Exchange& answering, serving::Answer&) { answer(answering, text); },
      /*error_status=*/0, keeping_alive(parsed));
}

void take_turn(const ApiContext& context, std::shared_ptr<Exchange> exchange, ParsedBody parsed,
               const serving::SharedPrincipal& principal) {
  if (!parsed.turn) return exchange->respond_error(parsed.turn.error());
  if (auto* loaded = std::get_if<Loaded>(&*parsed.turn)) {
    load(context, exchange, parsed, std::move(*loaded));
  } else {
    auto job = std::get<GenerationJob>(std::move(*parsed.turn));
    job.set_model(parsed.model);
    job.on_sent = keeping_alive(parsed);
    run_generation(context, std::move(exchange), std::move(job), principal);
  }
}

/// Returns a handler that parses the body with `parse(model, body, name)` and runs the turn.
template <class Parse>
Handler taking_turns(const ApiContext& context, Parse parse) {
  return [&context, parse](std::shared_ptr<Exchange> exchange, Request request) {
    if (refuses_new_work(context, *exchange)) return;
    const auto body_bytes = request.body.size();
    auto principal = request.principal;
    auto prepare = [&context, parse, text = std::move(request.body),
                    metered = std::move(request.body_bytes)]() -> ParsedBody {
      const auto body = read_object(text);
      if (!body) return {tl::unexpected(body.error())};
      auto named = read_model_name(context, *body);
      if (!named) return {tl::unexpected(std::move(named.error()))};
      const auto keep_alive = read_keep_alive(*body);
      if (!keep_alive) return {tl::unexpected(keep_alive.error())};
      return {parse(*named->model, *body, std::move(named->name)), named->model, *keep_alive};
    };
    prepared(context, body_bytes, std::move(exchange), std::move(prepare),
             [&context, principal = std::move(principal)](auto answering, auto parsed) {
               take_turn(context, std::move(answering), std::move(parsed), principal);
             });
  };
}

tl::expected<std::string, ErrorAnswer> show(const ApiContext& context, std::string_view text) {
  const auto body = read_object(text);
  if (!body) return tl::unexpected(body.error());
  const auto named = read_model_name(context, *body);
  if (!named) return tl::unexpected(named.error());
  wire::FieldReader fields(*body, wire::FieldReader::Nulls::absent);
  for (const char* name : {"model", "name", "verbose"}) fields.skip(name);
  for (const char* name : {"system", "template", "options"})
    refuse_unless_empty(fields, name, "a served model cannot be changed");
  if (auto status = fields.finish(); !status) return tl::unexpected(error_answer(status.error()));
  return show_model(context, *named->model);
}

/// Reads a body of /api/pull. Returns whether the answer is a stream. Nothing is downloaded: a served model counts as
/// pulled, and any other model is an error.
tl::expected<bool, ErrorAnswer> read_pull(const ApiContext& context, std::string_view text) {
  const auto body = read_object(text);
  if (!body) return tl::unexpected(body.error());
  wire::FieldReader fields(*body, wire::FieldReader::Nulls::absent);
  bool stream = true;
  for (const char* name : {"model", "name", "insecure", "username", "password"}) fields.skip(name);
  fields.read("stream", stream);
  if (auto status = fields.finish(); !status) return tl::unexpected(error_answer(status.error()));
  const auto named = read_model_name(context, *body);
  if (!named && named.error().status == 404) {
    return tl::unexpected(ErrorAnswer{404, "pull model manifest: file does not exist", "model", "model_not_found"});
  }
  if (!named) return tl::unexpected(named.error());
  return stream;
}

void answer_pull(Exchange& exchange, bool stream) {
  constexpr const char* kSuccess = R"({"status":"success"})";
  if (!stream) return answer(exchange, kSuccess);
  exchange.respond(200, "application/x-ndjson",
                   std::string(R"({"status":"pulling manifest"})") + "\n" + kSuccess + "\n");
}

}  // namespace

void answer_is_running(Exchange& exchange) {
  exchange.respond(200, "text/plain; charset=utf-8", "Ollama is running", {{"vary", "accept"}});
}

void add_routes(Routes& routes, const ApiContext& context) {
  using serving::ServedModel;
  routes.add(Verb::post, "/api/generate", Access::key,
             taking_turns(context, [](const ServedModel& model, const Json& body, std::string name) {
               return parse_generate(body, model.chat.get(), std::move(name));
             }));
  routes.add(Verb::post, "/api/chat", Access::key,
             taking_turns(context, [](const ServedModel& model, const Json& body, std::string name) -> ParsedTurn {
               if (!model.chat) return tl::unexpected(no_chat_template());
               return parse_chat(body, *model.chat, std::move(name));
             }));
  routes.add(Verb::post, "/api/show", Access::key, [&context](std::shared_ptr<Exchange> exchange, Request request) {
    const auto body_bytes = request.body.size();
    prepared(
        context, body_bytes, std::move(exchange),
        [&context, text = std::move(request.body), metered = std::move(request.body_bytes)] {
          return show(context, text);
        },
        [](const auto& answering, auto shown) {
          shown ? answer(*answering, std::move(*shown)) : answering->respond_error(shown.error());
        });
  });
  routes.add(Verb::post, "/api/pull", Access::key, [&context](std::shared_ptr<Exchange> exchange, Request request) {
    const auto body_bytes = request.body.size();
    prepared(
        context, body_bytes, std::move(exchange),
        [&context, text = std::move(request.body), metered = std::move(request.body_bytes)] {
          return read_pull(context, text);
        },
        [](const auto& answering, auto stream) {
          stream ? answer_pull(*answering, *stream) : answering->respond_error(stream.error());
        });
  });
  routes.add(Verb::get, "/api/tags", Access::key,
             [&context](const auto& exchange, const Request&) { answer(*exchange, list_models(context)); });
  routes.add(Verb::get, "/api/ps", Access::key,
             [&context](const auto& exchange, const Request&) { answer(*exchange, list_running(context)); });
  routes.add(Verb::get, "/api/version", Access::open,
             [](const auto& exchange, const Request&) { answer(*exchange, version_answer()); });
  routes.add(Verb::get, "/", Access::open, [](const auto& exchange, const Request&) { answer_is_running(*exchange); });
}

}  // namespace pagoda::http::ollama

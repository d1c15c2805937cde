#include "io/http/anthropic/routes.hpp"

#include <utility>

#include "io/http/anthropic/messages.hpp"
#include "io/http/body.hpp"
#include "io/http/engine_query.hpp"
#include "io/wire/json_writer.hpp"

namespace pagoda::http::anthropic {

void add_routes(Routes& routes, const ApiContext& context) {
  using serving::ServedModel;
  routes.add(Verb::post, "/v1/messages", Access::key,
             generating(context, "/v1/messages",
                        [](const ServedModel& model, const wire::Json& body, const Request& request) -> ParsedJob {
                          if (!model.chat) return tl::unexpected(no_chat_template());
                          return parse_messages(body, *model.chat, {"msg_" + request.request_id, model.info.name});
                        }));
  const auto parse = [](const ServedModel& model,
                        const wire::Json& body) -> tl::expected<actors::TokenizeRequest, ErrorAnswer> {
    if (!model.chat) return tl::unexpected(no_chat_template());
    return parse_count_tokens(body, *model.chat);
  };
  const auto answer = [](Exchange& exchange, serving::Answer& ids) {
    std::string out;
    wire::JsonWriter json(out);
    json.open_object().field("input_tokens", std::get<TokenIds>(ids).size()).close_object();
    exchange.respond(200, "application/json", std::move(out));
  };
  routes.add(Verb::post, "/v1/messages/count_tokens", Access::key,
             reading(context, parse,
                     [&context, answer](const ServedModel& model, auto exchange, actors::TokenizeRequest question) {
                       query_model(context, model, std::move(exchange), std::move(question), answer);
                     }));
}

}  // namespace pagoda::http::anthropic

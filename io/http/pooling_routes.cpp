#include "io/http/pooling_routes.hpp"

#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "io/http/body.hpp"
#include "io/http/ollama/model_names.hpp"

namespace pagoda::http {
namespace {

/// Returns 404, because clients retry after a 5xx and treat a 400 as a mistake in their request.
ErrorAnswer no_pooling(const std::string& model, std::string_view what) {
  return {404, "the model `" + model + "` does not compute " + std::string(what) + ": it generates text", "model",
          "not_supported"};
}

Handler refusing(const ApiContext& context, std::string_view what) {
  using Refused = tl::expected<std::monostate, ErrorAnswer>;
  return reading(
      context,
      [what](const serving::ServedModel& model, const wire::Json&) -> Refused {
        return tl::unexpected(no_pooling(model.info.name, what));
      },
      [](const serving::ServedModel&, const std::shared_ptr<Exchange>&, std::monostate) {});
}

/// Answers with "does not support embeddings", the text that Ollama's clients search for.
void refuse_ollama(const ApiContext& context, Exchange& exchange, std::string_view text) {
  const auto body = read_object(text);
  if (!body) return exchange.respond_error(body.error());
  const auto named = ollama::read_model_name(context, *body);
  if (!named) return exchange.respond_error(named.error());
  auto error = no_pooling(named->name, "embeddings");
  error.message += "; \"" + named->name + "\" does not support embeddings";
  exchange.respond_error(error);
}

}  // namespace

void add_pooling_routes(Routes& routes, const ApiContext& context) {
  for (const char* path : {"/v1/embeddings", "/pooling", "/classify"}) {
    routes.add(Verb::post, path, Access::key,
               refusing(context, path == std::string_view("/classify") ? "classes" : "embeddings"));
  }
  for (const char* path : {"/rerank", "/v1/rerank", "/v2/rerank", "/score", "/v1/score"}) {
    routes.add(Verb::post, path, Access::key, refusing(context, "embeddings or scores"));
  }
  for (const char* path : {"/api/embed", "/api/embeddings"}) {
    routes.add(Verb::post, path, Access::key, [&context](const auto& exchange, const Request& request) {
      refuse_ollama(context, *exchange, request.body);
    });
  }
}

}  // namespace pagoda::http

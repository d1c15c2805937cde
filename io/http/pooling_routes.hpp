#pragma once

#include "io/http/api_context.hpp"
#include "io/http/routes.hpp"

namespace pagoda::http {

/// Adds the routes of embeddings, rerankers and scores of OpenAI, Ollama, vLLM, Cohere and Jina. No model here pools:
/// each route answers 404 with the reason, in the format of its API. The context must outlive the routes.
void add_pooling_routes(Routes& routes, const ApiContext& context);

}  // namespace pagoda::http

#pragma once

#include "io/http/api_context.hpp"
#include "io/http/routes.hpp"

namespace pagoda::http::ollama {

/// Adds POST /api/generate, /api/chat, /api/show and /api/pull, GET /api/tags, /api/ps and /api/version, and GET and
/// HEAD /, with which Ollama's clients check whether a server is running. The context must outlive the routes.
void add_routes(Routes& routes, const ApiContext& context);

/// Sends the answer that Ollama's clients expect to GET /.
void answer_is_running(Exchange& exchange);

}  // namespace pagoda::http::ollama

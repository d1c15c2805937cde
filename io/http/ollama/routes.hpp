#pragma once

#include "io/http/api_context.hpp"
#include "io/http/routes.hpp"

namespace pagoda::http::ollama {

/// POST /api/generate, /api/chat, /api/show and /api/pull, GET /api/tags, /api/ps and /api/version, and HEAD /, by
/// which Ollama's clients ask whether there is a server. The context must outlive the routes.
void add_routes(Routes& routes, const ApiContext& context);

/// What Ollama's clients expect of GET /.
void answer_is_running(Exchange& exchange);

}  // namespace pagoda::http::ollama

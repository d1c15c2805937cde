#pragma once

#include "io/http/api_context.hpp"
#include "io/http/routes.hpp"

namespace pagoda::http::page {

/// Adds GET / for browsers, the files of the page under /ui, and GET /ui/live. Call before other routes of / are added.
/// GET / gives HTML to clients that accept it, and the answer that Ollama's clients expect to all others. The context
/// must outlive the routes.
void add_routes(Routes& routes, const ApiContext& context);

}  // namespace pagoda::http::page

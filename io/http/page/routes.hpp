#pragma once

#include "io/http/api_context.hpp"
#include "io/http/routes.hpp"

namespace pagoda::http::page {

/// GET / for browsers, the files of the page under /ui, and GET /ui/live. Before other routes of /: who does not ask
/// for HTML there gets what Ollama's clients expect. The context must outlive the routes.
void add_routes(Routes& routes, const ApiContext& context);

}  // namespace pagoda::http::page

#pragma once

#include "io/http/api_context.hpp"
#include "io/http/routes.hpp"

namespace pagoda::http {

/// Adds GET /metrics and /load. The context must outlive the routes.
void add_metrics_routes(Routes& routes, const ApiContext& context);

}  // namespace pagoda::http

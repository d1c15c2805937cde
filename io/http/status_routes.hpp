#pragma once

#include "io/http/api_context.hpp"
#include "io/http/routes.hpp"

namespace pagoda::http {

/// Adds GET /health, also as /health_generate (SGLang), /ready, /version and /stats. The context must outlive the
/// routes.
void add_status_routes(Routes& routes, const ApiContext& context);

}  // namespace pagoda::http

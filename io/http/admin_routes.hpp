#pragma once

#include "io/http/api_context.hpp"
#include "io/http/routes.hpp"

namespace pagoda::http {

/// Adds GET /admin/requests, DELETE /admin/requests/{id}, GET /admin/replicas, POST /admin/replicas/{id}/drain,
/// /admin/drain and /admin/reset_prefix_cache, also as /flush_cache (SGLang). The context must outlive the routes.
void add_admin_routes(Routes& routes, const ApiContext& context);

}  // namespace pagoda::http

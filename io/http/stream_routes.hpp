#pragma once

#include "io/http/api_context.hpp"
#include "io/http/routes.hpp"

namespace pagoda::http {

/// Adds GET /v1/streams/{id}?from=N, which follows a resumable stream, and DELETE /v1/streams/{id}, which ends its
/// request.
void add_stream_routes(Routes& routes, const ApiContext& context);

}  // namespace pagoda::http

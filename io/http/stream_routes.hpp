#pragma once

#include "io/http/api_context.hpp"
#include "io/http/routes.hpp"

namespace pagoda::http {

/// GET /v1/streams/{id}?from=N follows a resumable stream; DELETE ends its request.
void add_stream_routes(Routes& routes, const ApiContext& context);

}  // namespace pagoda::http

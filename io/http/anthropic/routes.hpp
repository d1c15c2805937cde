#pragma once

#include "io/http/api_context.hpp"
#include "io/http/routes.hpp"

namespace pagoda::http::anthropic {

/// Adds POST /v1/messages and /v1/messages/count_tokens. The context must outlive the routes.
void add_routes(Routes& routes, const ApiContext& context);

}  // namespace pagoda::http::anthropic

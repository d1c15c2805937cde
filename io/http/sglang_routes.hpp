#pragma once

#include "io/http/api_context.hpp"
#include "io/http/routes.hpp"

namespace pagoda::http {

/// Adds GET /server_info, /model_info and /get_load, which SGLang's routers request from a server of SGLang.
/// /model_info describes the model that the query names, or the first model. The context must outlive the routes.
void add_sglang_routes(Routes& routes, const ApiContext& context);

}  // namespace pagoda::http

#pragma once

#include "io/http/api_context.hpp"
#include "io/http/routes.hpp"

namespace pagoda::http {

/// Adds GET /server_info, /model_info, their older names /get_server_info and /get_model_info, /get_load and /v1/loads,
/// which routers request from a server of SGLang. The first four describe the model that the query names, or the first
/// model. The context must outlive the routes.
void add_sglang_routes(Routes& routes, const ApiContext& context);

}  // namespace pagoda::http

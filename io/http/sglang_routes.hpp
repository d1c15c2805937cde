#pragma once

#include "io/http/api_context.hpp"
#include "io/http/routes.hpp"

namespace pagoda::http {

/// GET /server_info, /model_info and /get_load: what SGLang's routers ask a server of SGLang. Of several models
/// /model_info has the one that the query names, or the first. The context must outlive the routes.
void add_sglang_routes(Routes& routes, const ApiContext& context);

}  // namespace pagoda::http

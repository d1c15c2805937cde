#pragma once

#include "io/http/api_context.hpp"
#include "io/http/routes.hpp"

namespace pagoda::http::openai {

/// Adds /v1/completions and /v1/chat/completions, each with /render, /v1/models, and vLLM's /tokenize, /detokenize and
/// /apply_template. The context must outlive the routes.
void add_routes(Routes& routes, const ApiContext& context);

}  // namespace pagoda::http::openai

#pragma once

#include "io/http/api_context.hpp"
#include "io/http/openai/response_store.hpp"
#include "io/http/routes.hpp"

namespace pagoda::http::openai {

/// Adds POST /v1/responses, /v1/responses/input_tokens and /v1/responses/render, GET and DELETE /v1/responses/{id}, and
/// POST /v1/responses/{id}/cancel. The context and the store must outlive the routes.
void add_response_routes(Routes& routes, const ApiContext& context, ResponseStore& store);

}  // namespace pagoda::http::openai

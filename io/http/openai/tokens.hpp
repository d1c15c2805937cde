#pragma once

#include "io/http/api_context.hpp"
#include "io/http/routes.hpp"

namespace pagoda::http::openai {

/// Adds POST /tokenize, /detokenize and /apply_template, and GET /tokenizer_info, as in vLLM.
void add_token_routes(Routes& routes, const ApiContext& context);

}  // namespace pagoda::http::openai

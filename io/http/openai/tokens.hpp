#pragma once

#include "io/http/api_context.hpp"
#include "io/http/routes.hpp"

namespace pagoda::http::openai {

/// POST /tokenize, /detokenize and /apply_template, GET /tokenizer_info, as vLLM has them.
void add_token_routes(Routes& routes, const ApiContext& context);

}  // namespace pagoda::http::openai

#pragma once

#include <string>

#include "actors/messages.hpp"
#include "engine/request/generate_request.hpp"
#include "io/http/api_context.hpp"
#include "io/http/job_parsers.hpp"
#include "io/http/request.hpp"
#include "io/http/routes.hpp"

namespace pagoda::http::openai {

/// Returns the tokenizer request for the text prompt of a request.
actors::TokenizeRequest tokens_of_prompt(GenerateRequest request);

/// Adds POST `path`/render, as in vLLM: returns the token ids and sampling parameters that a body of `path` would run.
/// `parse` is the parser of `path`, and `id_prefix` the prefix of its ids. With `is_list` the answer is a list with an
/// element for each prompt. `takes_long` as for reading_request. The context must outlive the routes.
void add_render_route(Routes& routes, const ApiContext& context, const std::string& path, ParseJob parse,
                      std::string id_prefix, bool is_list, bool (*takes_long)(const Request& request) = nullptr);

}  // namespace pagoda::http::openai

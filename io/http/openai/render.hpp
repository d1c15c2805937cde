#pragma once

#include <string>

#include "actors/messages.hpp"
#include "engine/request/generate_request.hpp"
#include "io/http/api_context.hpp"
#include "io/http/job_parsers.hpp"
#include "io/http/routes.hpp"

namespace pagoda::http::openai {

/// The question for the tokens of a request's prompt, which is a text.
actors::TokenizeRequest tokens_of_prompt(GenerateRequest request);

/// Adds POST `path`/render, as vLLM has it: what a body of `path` would run, as token ids and sampling parameters.
/// `parse` is the parser of `path`, `id_prefix` what its answers' ids begin with. With `is_list` the answer has an
/// element for each prompt. The context must outlive the routes.
void add_render_route(Routes& routes, const ApiContext& context, const std::string& path, ParseJob parse,
                      std::string id_prefix, bool is_list);

}  // namespace pagoda::http::openai

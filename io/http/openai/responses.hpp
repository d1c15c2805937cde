#pragma once

#include "io/chat/chat_prompts.hpp"
#include "io/http/generation.hpp"
#include "io/http/openai/common.hpp"
#include "io/http/openai/response_store.hpp"

namespace pagoda::http::openai {

/// Makes the job of a body of POST /v1/responses. `head.id` is the request's own_id. The conversation that `owner` has
/// stored under previous_response_id comes before the input. If the request asks for it, the job stores the response in
/// `store`, which must outlive the job. `defaults` are the model's; the response shows them for fields that the request
/// leaves open.
ParsedJob parse_response(const wire::Json& body, const chat::ChatPrompts& prompts, ResponseStore& store,
                         const ResponseStore::Owner& owner, Head head, const SamplingDefaults& defaults = {});

}  // namespace pagoda::http::openai

#pragma once

#include "io/chat/chat_prompts.hpp"
#include "io/http/generation.hpp"
#include "io/http/openai/common.hpp"
#include "io/http/openai/response_store.hpp"

namespace pagoda::http::openai {

/// POST /v1/responses: the job of a body. `head.id` is the request's own id. What `owner` has
/// kept under previous_response_id comes before the input. The job puts into `store`, which must outlive it, what it
/// is asked to keep. `defaults` are the model's, which the response tells of where the request leaves fields open.
ParsedJob parse_response(const wire::Json& body, const chat::ChatPrompts& prompts, ResponseStore& store,
                         const ResponseStore::Owner& owner, Head head, const SamplingDefaults& defaults = {});

}  // namespace pagoda::http::openai

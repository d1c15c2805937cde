#pragma once

#include <tl/expected.hpp>

#include "io/chat/chat_prompts.hpp"
#include "io/http/generation.hpp"
#include "io/http/openai/common.hpp"

namespace pagoda::http::openai {

/// Makes the job of a body of POST /v1/chat/completions.
ParsedJob parse_chat(const wire::Json& body, const chat::ChatPrompts& prompts, Head head);

}  // namespace pagoda::http::openai

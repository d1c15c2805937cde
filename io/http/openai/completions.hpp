#pragma once

#include <tl/expected.hpp>

#include "io/http/generation.hpp"
#include "io/http/openai/common.hpp"

namespace pagoda::http::openai {

/// Maximum number of prompts in one request, whatever the engine's limit is.
inline constexpr std::int64_t kMaxPrompts = 4096;

/// Makes the job of a body of POST /v1/completions. `head.model` must be set. Refuses more prompts than
/// `max_queued_requests`, the number of requests that the engine can queue.
ParsedJob parse_completion(const wire::Json& body, Head head, std::int64_t max_queued_requests = kMaxPrompts);

}  // namespace pagoda::http::openai

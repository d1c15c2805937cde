#pragma once

#include <tl/expected.hpp>

#include "io/http/generation.hpp"
#include "io/http/openai/common.hpp"

namespace pagoda::http::openai {

/// Of one request, whatever the engine takes.
inline constexpr std::int64_t kMaxPrompts = 4096;

/// POST /v1/completions: the job of a body. `head.model` is set already. More prompts than `max_queued_requests`, which
/// is what the engine ever takes at a time, are refused.
ParsedJob parse_completion(const wire::Json& body, Head head, std::int64_t max_queued_requests = kMaxPrompts);

}  // namespace pagoda::http::openai

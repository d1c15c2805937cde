#pragma once

#include <tl/expected.hpp>

#include "io/http/generation.hpp"
#include "io/http/openai/common.hpp"

namespace pagoda::http::openai {

/// POST /v1/completions: the job of a body. `head.model` is set already.
ParsedJob parse_completion(const wire::Json& body, Head head);

}  // namespace pagoda::http::openai

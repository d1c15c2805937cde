#pragma once

#include "engine/request/generate_request.hpp"

namespace pagoda::serving {

/// Logs the prompt of a request, as one line of level info. Used only with --log-prompts.
void log_prompt(const GenerateRequest& request);

}  // namespace pagoda::serving

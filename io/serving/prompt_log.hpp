#pragma once

#include "engine/request/generate_request.hpp"

namespace pagoda::serving {

/// A line in the log, of level info, with what a client asks the model: for --log-prompts alone.
void log_prompt(const GenerateRequest& request);

}  // namespace pagoda::serving

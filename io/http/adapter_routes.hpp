#pragma once

#include "io/http/api_context.hpp"
#include "io/http/routes.hpp"

namespace pagoda::http {

/// Adds vLLM's routes that load and unload adapters, and llama-server's /lora-adapters.
void add_adapter_routes(Routes& routes, const ApiContext& context);

}  // namespace pagoda::http

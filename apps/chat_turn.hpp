#pragma once

#include <functional>
#include <string_view>

#include "apps/interrupts.hpp"
#include "pagoda/engine.hpp"

namespace pagoda::apps {

/// Runs one request and waits for its end. Passes its text to `on_text` as it comes, on the calling thread. An
/// interrupt ends the request early: the result has what was generated, with the finish reason abort.
Result<RequestResult> run_turn(Engine& engine, GenerateRequest request, Interrupts& interrupts,
                               const std::function<void(std::string_view)>& on_text);

}  // namespace pagoda::apps

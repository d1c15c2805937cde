#pragma once

#include "engine/config.hpp"
#include "engine/trace/tracer.hpp"
#include "pagoda/engine_parts.hpp"
#include "pagoda/engine_plan.hpp"
#include "pagoda/engine_setup.hpp"

namespace pagoda {

/// A device whose worker and cache engine live in processes that are started as `setup` says. Nothing is loaded yet.
/// Errors: bad_config.
Result<LoadedDevice> worker_process_device(const EngineConfig& config, const EnginePlan& plan, const EngineSetup& setup,
                                           const trace::SharedTracer& trace);

/// What such a process does: loads the model that the engine's process names, tells when it is ready, and runs steps
/// until that process has gone. Call it with nothing open that is needed elsewhere and no other thread; it ends the
/// process.
[[noreturn]] void run_worker_process();

}  // namespace pagoda

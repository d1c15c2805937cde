#pragma once

#include <cstdint>
#include <string>

#include "engine/config.hpp"
#include "engine/trace/tracer.hpp"
#include "pagoda/engine_parts.hpp"
#include "pagoda/engine_plan.hpp"
#include "pagoda/engine_setup.hpp"

namespace pagoda {

/// A device whose worker and cache engine live in processes that are started as `setup` says, or join where `config`
/// says. Nothing is loaded yet. Errors: bad_config, io_failed.
Result<LoadedDevice> worker_process_device(const EngineConfig& config, const EnginePlan& plan, const EngineSetup& setup,
                                           const trace::SharedTracer& trace);

/// What is its own where it works on another host than the engine.
struct WorkerOptions {
  std::string model;         ///< where the engine's model lies; empty: where the engine has it
  std::int32_t threads = 0;  ///< 0: as the engine says
};

/// What such a process does: loads the model that the engine's process names, tells when it is ready, and runs steps
/// until that process has gone. Call it with nothing open that is needed elsewhere and no other thread; it ends the
/// process.
[[noreturn]] void run_worker_process(const WorkerOptions& options = {});

}  // namespace pagoda

#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "engine/config.hpp"
#include "engine/trace/tracer.hpp"
#include "pagoda/engine_parts.hpp"
#include "pagoda/engine_plan.hpp"
#include "pagoda/engine_setup.hpp"

namespace pagoda {

/// Whether the device's memory is planned in the worker process, since it is not this one's to look at: on another
/// host, or a GPU, of which a process takes memory for being able to ask.
bool worker_plans_memory(const EngineConfig& config);

/// A device whose worker and cache engine live in processes that are started as `setup` says, or join where `config`
/// says. Nothing is loaded yet, but where the worker plans the memory: there a first one has. Errors: bad_config,
/// io_failed; what such a worker reports.
Result<LoadedDevice> worker_process_device(const EngineConfig& config, const EnginePlan& plan, const EngineSetup& setup,
                                           const trace::SharedTracer& trace);

/// What is a worker's own, beside what the engine says.
struct WorkerOptions {
  std::string model = {};    ///< where the engine's model lies on this host; empty: where the engine has it
  std::string device = {};   ///< another GPU than the engine says
  std::int32_t threads = 0;  ///< 0: as the engine says
  /// Makes the device that a configuration names; null: create_device.
  std::function<Result<std::shared_ptr<kernels::Device>>(const EngineConfig&)> create_device = nullptr;
};

/// What such a process does: loads the model that the engine's process names, tells when it is ready, and runs steps
/// until that process has gone. Call it with nothing open that is needed elsewhere and no other thread; it ends the
/// process.
[[noreturn]] void run_worker_process(const WorkerOptions& options = {});

}  // namespace pagoda

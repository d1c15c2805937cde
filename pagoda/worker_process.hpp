#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "engine/config.hpp"
#include "engine/trace/tracer.hpp"
#include "io/device_link/shared_weights.hpp"
#include "kernels/cpu/rank_memory.hpp"
#include "pagoda/engine_parts.hpp"
#include "pagoda/engine_plan.hpp"
#include "pagoda/engine_setup.hpp"

namespace pagoda::device_link {
class JoinListener;
class StageRelay;
}  // namespace pagoda::device_link

namespace pagoda {

/// Returns whether the worker process plans the device's memory. It does if this process cannot look at that memory
/// without cost: the device is on another host, or it is a GPU, which takes memory for each process that queries it.
bool worker_plans_memory(const EngineConfig& config);

/// Memory that worker processes share, and that outlives them.
struct SharedByProcesses {
  std::shared_ptr<device_link::SharedWeights> weights;  ///< as shared_weights makes it
  std::shared_ptr<kernels::RankMemory> exchange;        ///< of the ranks of a replica; null if there is one
};

/// What the devices of an engine share whose workers join from other hosts.
struct JoiningWorkers {
  std::shared_ptr<device_link::JoinListener> listener;  ///< null: workers do not join
  std::shared_ptr<device_link::StageRelay> stages;      ///< null: there is one stage
};

/// Opens the port where workers join, if the configuration has one. `plan`: of any rank. Errors: bad_config, io_failed.
Result<JoiningWorkers> listen_for_workers(const EngineConfig& config, const EnginePlan& plan);

/// Makes a device whose worker and cache engine live in processes that are started as `setup` describes, or that join
/// as `config` describes. Nothing is loaded yet, except when the worker plans the memory: then a first process has
/// loaded. `config`, `plan`: of the rank. Errors: bad_config, io_failed, and the error that such a worker reports.
Result<LoadedDevice> worker_process_device(const EngineConfig& config, const EnginePlan& plan, const EngineSetup& setup,
                                           const trace::SharedTracer& trace, SharedByProcesses shared,
                                           const JoiningWorkers& joining);

/// Makes the memory of weight copies that outlives processes. Processes of several replicas may share it if they start
/// one after the other. Returns null if there are no copies, or if the worker is on another host. Errors: io_failed.
Result<std::shared_ptr<device_link::SharedWeights>> shared_weights(const EngineConfig& config, const EnginePlan& plan);

/// Settings of a worker itself, beside those that the engine sends.
struct WorkerOptions {
  std::string model = {};    ///< path of the engine's model on this host; empty: as on the engine's host
  std::string device = {};   ///< a GPU to use instead of the engine's; empty: the engine's
  std::int32_t threads = 0;  ///< number of threads; 0: as the engine sets
  /// EngineConfig::packed_cache of a worker that has joined from another host; others have the engine's.
  std::string packed_cache = "off";
  /// Makes the device that a configuration names; null: create_device.
  std::function<Result<std::shared_ptr<kernels::Device>>(const EngineConfig&)> create_device = nullptr;
};

/// Runs a worker process: loads the model that the engine's process names, reports when it is ready, and runs steps
/// until the engine's process has ended. Ends the process. Call it before other threads start and before files are
/// opened that are needed elsewhere.
[[noreturn]] void run_worker_process(const WorkerOptions& options = {});

}  // namespace pagoda

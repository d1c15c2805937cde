#pragma once

#include <memory>

#include "actors/interfaces.hpp"
#include "io/device_link/worker_process.hpp"

namespace pagoda::device_link {

/// Spawns the actor that represents the worker and the cache engine of a worker process. When the actor ends, it ends
/// the process and waits for its end.
actors::DeviceProcessActor spawn_device_proxy(caf::actor_system& system, std::unique_ptr<WorkerProcess> process);

}  // namespace pagoda::device_link

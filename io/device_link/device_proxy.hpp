#pragma once

#include <memory>

#include "actors/interfaces.hpp"
#include "io/device_link/worker_process.hpp"

namespace pagoda::device_link {

/// The actor that stands for the worker and the cache engine of a process. When it ends, so does the process; its state
/// waits for that.
actors::DeviceProcessActor spawn_device_proxy(caf::actor_system& system, std::unique_ptr<WorkerProcess> process);

}  // namespace pagoda::device_link

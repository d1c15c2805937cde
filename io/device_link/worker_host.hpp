#pragma once

#include "actors/engine_actors.hpp"
#include "engine/execution/message_checks.hpp"
#include "io/device_link/frame_channel.hpp"
#include "io/device_link/messages.hpp"

namespace pagoda::device_link {

/// In a worker process: runs worker and cache engine for the other end of the channel, until that has gone or has sent
/// what cannot be. What they tell goes there, also after the return: the process must end then.
void host_device(caf::actor_system& system, FrameChannel& channel, actors::WorkerParts worker, actors::CacheParts cache,
                 const execution::DeviceLimits& limits, LoadedDeviceFacts facts);

}  // namespace pagoda::device_link

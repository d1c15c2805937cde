#pragma once

#include "actors/engine_actors.hpp"
#include "engine/execution/message_checks.hpp"
#include "io/device_link/frame_channel.hpp"
#include "io/device_link/messages.hpp"
#include "io/device_link/stage_link.hpp"

namespace pagoda::device_link {

/// Runs the worker and the cache engine of a worker process for the other end of the channel. `stages`: the connection
/// with stages on other hosts; null if there are none. Returns when the other
/// end has closed or has sent an invalid message. The worker and the cache engine may still send to the channel after
/// the return, so the process must end then.
void host_device(caf::actor_system& system, FrameChannel& channel, actors::WorkerParts worker, actors::CacheParts cache,
                 const execution::DeviceLimits& limits, LoadedDeviceFacts facts, StageLink* stages = nullptr);

}  // namespace pagoda::device_link

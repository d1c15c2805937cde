#pragma once

#include "actors/interfaces.hpp"
#include "engine/config.hpp"
#include "kernels/result.hpp"
#include "pagoda/engine_setup.hpp"

namespace pagoda {

/// An engine inside the caller's actor system. When the last handle to `supervisor` is told to exit
/// (`caf::anon_send_exit(handle.supervisor, caf::exit_reason::user_shutdown)`), every actor of the engine ends.
struct EngineHandle {
  actors::RequestRouterActor router;
  caf::actor supervisor;
};

/// Call once before the first caf::actor_system of the process (CAF 1.x registers message types globally).
void init_actor_types();

/// Loads the model and spawns router, scheduler, block manager, cache engine, worker, output processor and supervisor.
/// Blocks while the model loads. Errors as Engine::create.
Result<EngineHandle> spawn_engine(caf::actor_system& system, const EngineConfig& config, const EngineSetup& setup = {});

}  // namespace pagoda

#pragma once

#include <functional>

#include "actors/interfaces.hpp"
#include "engine/config.hpp"
#include "kernels/result.hpp"
#include "pagoda/engine_setup.hpp"

namespace pagoda {

/// An engine inside the caller's actor system. When `supervisor` gets an exit message, every actor of the engine ends.
///
/// When the engine fails, for example because its device cannot be used any more, every live request ends with an
/// error that has the reason, and then `supervisor` ends by itself. Only `router` stays: it refuses requests with this
/// error and returns it as the `health` of the stats, until it gets an exit message or the last handle to it is
/// destroyed.
struct EngineHandle {
  actors::RequestRouterActor router;
  caf::actor supervisor;
  ModelInfo model;
  /// As described at EngineSetup::journal_takes_place_later. Errors: bad_config.
  std::function<Status()> take_journal_place = [] { return Status(); };
};

/// Ends the engine, failed or not. Returns at once.
void end_engine(const EngineHandle& engine);

/// Call once before the first caf::actor_system of the process (CAF 1.x registers message types globally).
void init_actor_types();

/// Loads the model and spawns router, scheduler, block manager, cache engine, worker, output processor and supervisor.
/// Blocks while the model loads. Errors: as Engine::create.
Result<EngineHandle> spawn_engine(caf::actor_system& system, const EngineConfig& config, const EngineSetup& setup = {});

}  // namespace pagoda
